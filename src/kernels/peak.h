// Rates of this machine: what the products and the attention of this program reach. (`bench` and the log measure by
// train/bench.h.)
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/executor.h"
#include "kernels/matmul.h"

namespace megatron::kernels {

/// Best and median over the repetitions, in 1e9 floating-point operations per second.
struct MeasuredRate {
  double best_gflops = 0;
  double median_gflops = 0;
  double median_seconds = 0;
  std::int64_t repetitions = 0;
};

/// Best GFLOP/s of square fp32 products on the executor's threads: n = 2048, or smaller where three of that size do not
/// fit `seconds_budget`. 0 on meta.
double measure_matmul_peak(Executor& exec, double seconds_budget);

/// Runs C[m,n] = op(A)·op(B) with inner size k again and again for about `seconds_budget` (at least three times).
MeasuredRate measure_matmul(Executor& exec, std::int64_t m, std::int64_t n, std::int64_t k, Transpose transpose_a,
                            Transpose transpose_b, double seconds_budget);

struct AttentionShape {
  std::int64_t sequences = 1, tokens = 1024, heads = 12, key_heads = 12, head_size = 64;
  bool causal = true;
};

/// The same for attention; FLOPs are those that WorkCounters counts (visible pairs, scores not counted twice).
MeasuredRate measure_attention_forward(Executor& exec, const AttentionShape& shape, double seconds_budget);
MeasuredRate measure_attention_backward(Executor& exec, const AttentionShape& shape, double seconds_budget);

}  // namespace megatron::kernels
