// The matrix product of float32, bfloat16 and float16 on vector units.
#pragma once

#include "kernels/matmul.h"

namespace megatron::kernels::cpu {

/// c[m][n] (+)= op(a)·op(b); see kernels/matmul.h for types and the order of the sums. Row steps are in bytes.
struct MatmulProblem {
  std::int64_t m, n, k;
  DType operands;
  const std::byte* a;
  std::int64_t a_step;
  bool transpose_a;
  const std::byte* b;
  std::int64_t b_step;
  bool transpose_b;
  DType result;  // float32, or the operands' type
  std::byte* c;
  std::int64_t c_step;
  bool accumulate;  // into float32 only
};

/// Bytes of the executor's scratch that matmul() uses.
std::int64_t matmul_scratch_bytes(std::int64_t m, std::int64_t n, std::int64_t k, DType operands, DType result,
                                  int num_threads);
/// `scratch` has matmul_scratch_bytes() bytes, 64-byte aligned.
void matmul(Executor& exec, const MatmulProblem& problem, std::byte* scratch) noexcept;

}  // namespace megatron::kernels::cpu
