// LayerNorm and RMSNorm of the oracle.
#pragma once

#include "kernels/norm.h"

namespace megatron::kernels::ref {

/// As kernels/norm.h, fp64.
void norm_forward(Executor& exec, NormKind kind, ConstTensorView x, ConstTensorView gamma, ConstTensorView beta,
                  double eps, TensorView y, TensorView mean, TensorView rstd);
void norm_backward(Executor& exec, NormKind kind, ConstTensorView dy, ConstTensorView x, ConstTensorView gamma,
                   ConstTensorView mean, ConstTensorView rstd, TensorView dx, TensorView dgamma, TensorView dbeta);

}  // namespace megatron::kernels::ref
