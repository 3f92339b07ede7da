// Builds what one rank holds of the model from the run's description: the only place that gives groups to layers.
#pragma once

#include <memory>
#include <span>

#include "mesh/mesh.h"
#include "model/model.h"
#include "spec/run_spec.h"

namespace megatron::model {

/// `run` is complete (all derived fields set). Allocates parameter values of type `dtype` (float32; float64 for
/// gradient checks) in the rank's allocator, uninitialised. No communication.
std::unique_ptr<Model> build_model(mesh::Rank& rank, const spec::RunSpec& run, DType dtype = DType::float32);

/// Initial values as a function of (seed, name, logical index): the same bits under every layout. Padding rows are
/// zero. `parameters`: all of the rank.
void initialize_parameters(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, std::uint64_t seed);

}  // namespace megatron::model
