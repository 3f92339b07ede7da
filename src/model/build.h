// Builds what one rank holds of the model from the run's description: the only place that gives groups to layers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "mesh/mesh.h"
#include "model/model.h"
#include "spec/run_spec.h"

namespace megatron::model {

/// `run` is complete (all derived fields set). Allocates parameter values in the rank's allocator, uninitialised, of
/// the run's type, or `dtype` (float64 for gradient checks); `values_elsewhere`: on meta, for an owner that will give
/// them memory (optim/parameter_shards.h). No communication.
std::unique_ptr<Model> build_model(mesh::Rank& rank, const spec::RunSpec& run, std::optional<DType> dtype = {},
                                   bool values_elsewhere = false);

/// Initial values as a function of (seed, name, logical index): the same bits under every layout. Padding rows are
/// zero. `parameters`: all of the rank. Values of a 16-bit type, and those that are not in memory, are made in float32
/// and handed to `set_weights`; it may be null where there are none.
void initialize_parameters(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, std::uint64_t seed,
                           const std::function<void(nn::Parameter&, const Tensor& values_fp32)>& set_weights = nullptr);

}  // namespace megatron::model
