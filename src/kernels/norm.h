// LayerNorm (arXiv 1607.06450) and RMSNorm (arXiv 1910.07467) over the last dim of x_TH.
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels {

enum class NormKind : std::uint8_t { layer_norm, rms_norm };

// float32, float64 (the oracle), bfloat16 and float16: 16-bit values are widened, computed with as the float32 kernel
// does, and rounded once. Beside 16-bit operands x (and dx) may be float32: a residual stream of more precision.

/// y = (x − mean)·rstd·gamma + beta, or x·rstd·gamma; eps inside the root. x, y [T,H]; row strides may exceed H.
/// mean_T is written for LayerNorm only (may be a null view otherwise), rstd_T always; both float32 (float64
/// with float64 x). gamma and beta have y's dtype. beta may be a
/// null view. Row statistics: sums in fixed lanes, in double for fp32 input. Level 0.
void norm_forward(Executor& exec, NormKind kind, ConstTensorView x, ConstTensorView gamma, ConstTensorView beta,
                  double eps, TensorView y, TensorView mean, TensorView rstd);

/// dx [T,H], of x's dtype, is written (may alias dy if that has the same dtype); gamma has dy's dtype; dgamma [H] and
/// dbeta [H] (fp32, or fp64 with fp64 input; dbeta may be null) are added to, summed over tokens in blocks of 64 by the
/// canonical tree.
void norm_backward(Executor& exec, NormKind kind, ConstTensorView dy, ConstTensorView x, ConstTensorView gamma,
                   ConstTensorView mean, ConstTensorView rstd, TensorView dx, TensorView dgamma, TensorView dbeta);

}  // namespace megatron::kernels
