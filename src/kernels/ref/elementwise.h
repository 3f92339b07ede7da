// Point-wise kernels of the oracle.
#pragma once

#include "kernels/elementwise.h"

namespace megatron::kernels::ref {

/// As kernels/elementwise.h, fp64.
void add_in_place(Executor& exec, ConstTensorView src, TensorView dst);
void add_bias(ConstTensorView bias, TensorView y);
void bias_grad(ConstTensorView dy, TensorView grad);
void bias_dropout_add(ConstTensorView x, ConstTensorView bias, ConstTensorView residual, const DropoutSpec& dropout,
                      RowPositions rows, TensorView y);

}  // namespace megatron::kernels::ref
