// LayerNorm and RMSNorm on vector units.
#pragma once

#include "kernels/norm.h"

namespace megatron::kernels::cpu {

// As kernels/norm.h, fp32 and 16 bits. Row sums in double over 16 lanes.
void norm_forward(Executor& exec, NormKind kind, ConstTensorView x, ConstTensorView gamma, ConstTensorView beta,
                  double eps, TensorView y, TensorView mean, TensorView rstd) noexcept;
/// Floats of `parts`, the column sums of blocks of tokens.
std::int64_t norm_backward_parts(std::int64_t rows, std::int64_t hidden);
void norm_backward(Executor& exec, NormKind kind, ConstTensorView dy, ConstTensorView x, ConstTensorView gamma,
                   ConstTensorView mean, ConstTensorView rstd, TensorView dx, TensorView dgamma, TensorView dbeta,
                   float* parts) noexcept;

}  // namespace megatron::kernels::cpu
