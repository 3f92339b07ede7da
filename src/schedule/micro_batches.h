// How many micro-batches make one step: Megatron's constant batch size.
#pragma once

#include <cstdint>

namespace megatron::schedule {

struct MicroBatchCount {
  std::int64_t num_micro_batches = 0;     // per step and data-parallel rank
  std::int64_t running_global_batch = 0;  // samples that a step really trains
};

/// global ÷ (micro · dp). Throws ConfigError with the numbers and the nearest valid global batch sizes where that is
/// not a whole number ≥ 1; with `decrease_if_needed` it is rounded down (but not to 0).
MicroBatchCount constant_micro_batches(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                                       std::int64_t data_parallel, bool decrease_if_needed = false);

}  // namespace megatron::schedule
