// How fast kernels are on this machine: the time of anything, and the rate of the matrix product that everything else
// is compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/executor.h"

namespace megatron::kernels {

struct Timing {
  double best_seconds = 0;
  double median_seconds = 0;
  std::int64_t repetitions = 0;  // that were measured
};

/// Runs `body` once unmeasured, then at least `least` times and until `seconds_budget` is spent.
Timing time_repeated(double seconds_budget, std::int64_t least, const std::function<void()>& body);

/// FLOP/s of the best of `repetitions` square products over all of `sizes`, on the executor's threads. Operands and
/// result are of `type` (float32, bfloat16 or float16), and are not counted as the rank's memory. 0 on meta.
double matmul_peak(Executor& exec, std::span<const std::int64_t> sizes, std::int64_t repetitions,
                   DType type = DType::float32);

/// The same within about `seconds_budget` (0.3 gives a fair figure): the best of at least three products of the largest
/// size of 512, 1024, 2048 that fits. Smaller ones would not reach the rate of a step's large products.
double matmul_peak_within(Executor& exec, double seconds_budget, DType type = DType::float32);

}  // namespace megatron::kernels
