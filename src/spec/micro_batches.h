// How many micro-batches make one step: Megatron's constant batch size.
#pragma once

#include <cstdint>

namespace megatron::spec {

struct MicroBatchCount {
  std::int64_t num_micro_batches = 0;     // per step and data-parallel rank
  std::int64_t running_global_batch = 0;  // samples that these hold
};

/// global ÷ (micro · dp), rounded down; all three ≥ 1. A run is valid if the micro-batches hold the whole global batch;
/// with Megatron's --decrease-batch-size-if-needed, if there is at least one.
constexpr MicroBatchCount constant_micro_batches(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                                                 std::int64_t data_parallel) {
  const std::int64_t per_round = micro_batch_size * data_parallel;
  const std::int64_t rounds = global_batch_size / per_round;
  return {rounds, rounds * per_round};
}

}  // namespace megatron::spec
