// Matrix products. Our own kernel: the bits of each element depend on K and its operands alone.
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels {

enum class Transpose : std::uint8_t { no, yes };

/// C[M,N] = op(A)·op(B), or C += … with `accumulate`.
/// A is [M,K] (or [K,M] with Transpose::yes), B is [K,N] (or [N,K]); views may have any row stride, last stride 1.
/// fp32 or fp64, all three alike. C aliases neither A nor B.
/// Order (level 0): each element is a chain of fused multiply-adds in ascending k over chunks of 384, the sums of the
/// chunks added in order (to C's old value first, when accumulating); independent of threads, tiles and slices of M and
/// N, and the same on every instruction set. (fp64, the oracle: products and sums rounded one by one.)
/// Counts 2·M·N·K FLOPs. Small products run on the calling thread.
void matmul(Executor& exec, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
            TensorView c, bool accumulate = false);

constexpr std::int64_t kMatmulChunk = 384;

}  // namespace megatron::kernels
