// From a data set to the micro-batches of one rank.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "mesh/mesh.h"
#include "nn/pass.h"

namespace megatron::train {

/// Which samples a step reads: global indices [first_sample, first_sample + global_batch); those at or beyond
/// `end_sample` are replaced by samples that train nothing.
struct StepSamples {
  std::int64_t first_sample = 0;
  std::int64_t global_batch = 0;
  std::int64_t micro_batch_size = 1;
  std::int64_t end_sample = INT64_MAX;
  bool operator==(const StepSamples&) const = default;
};

/// The micro-batches of this rank's data-parallel slot, in order (Megatron-LM's sampler: every mbs·dp consecutive
/// samples are one micro-batch of each slot), with the rows' global sample numbers and their sequence-parallel shard.
std::vector<nn::MicroBatch> make_micro_batches(const data::Dataset& dataset, const data::SampleOrder& order,
                                               const StepSamples& step, const mesh::Mesh& mesh, bool sequence_parallel);

/// One batch of data/batch.h as the layers take it.
nn::MicroBatch to_micro_batch(data::Batch&& batch, std::int64_t index, const mesh::Mesh& mesh, bool sequence_parallel);

}  // namespace megatron::train
