// Matrix products. Our own kernel: the bits of each element depend on K and its operands alone.
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels {

enum class Transpose : std::uint8_t { no, yes };

/// C[M,N] = op(A)·op(B), or C += … with `accumulate`.
/// A is [M,K] (or [K,M] with Transpose::yes), B is [K,N] (or [N,K]); views may have any row stride, last stride 1.
/// A and B are fp32, fp64, bf16 or fp16, both alike. C is of their type, or fp32 for 16-bit operands; `accumulate` only
/// with fp32 or fp64. C aliases neither A nor B.
/// Order (level 0): K is cut into chunks of 384; each element is a chain of fused multiply-adds over a chunk, the sums
/// of the chunks are added in order (to C's old value first, when accumulating). A 16-bit C is the final fp32 sum,
/// rounded once to nearest even (above the largest finite value: infinity). Independent of threads, tiles and slices of
/// M and N, and the same on every instruction set. The chain over a chunk:
///   fp32, fp16   ascending k; fp16 is widened exactly.
///   bf16         pairs of k in ascending order, the odd k of a pair first (an odd K is filled up with a zero):
///                s = fma(a₀, b₀, fma(a₁, b₁, s)). Subnormal operands count as zero, and so does every sum below 2⁻¹²⁶
///                within the chain (rounded to 24 bits first, with its sign), as AVX512_BF16 does it.
///   fp64         the oracle: products and sums rounded one by one.
/// Counts 2·M·N·K FLOPs. Small products run on the calling thread.
void matmul(Executor& exec, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
            TensorView c, bool accumulate = false);

constexpr std::int64_t kMatmulChunk = 384;

}  // namespace megatron::kernels
