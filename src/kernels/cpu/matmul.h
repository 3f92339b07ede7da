// The fp32 matrix product on vector units.
#pragma once

#include "kernels/matmul.h"

namespace megatron::kernels::cpu {

/// c[m][n] (+)= op(a)·op(b) with row strides; see kernels/matmul.h for the order of the sums.
struct MatmulProblem {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t a_stride;
  bool transpose_a;
  const float* b;
  std::int64_t b_stride;
  bool transpose_b;
  float* c;
  std::int64_t c_stride;
  bool accumulate;
};

/// Bytes of the executor's scratch that matmul() uses.
std::int64_t matmul_scratch_bytes(std::int64_t m, std::int64_t n, std::int64_t k, int num_threads);
/// `scratch` has matmul_scratch_bytes() bytes, 64-byte aligned.
void matmul(Executor& exec, const MatmulProblem& problem, std::byte* scratch) noexcept;

}  // namespace megatron::kernels::cpu
