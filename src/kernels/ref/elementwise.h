// Point-wise kernels of the oracle.
#pragma once

#include "kernels/elementwise.h"

namespace megatron::kernels::ref {

template <typename T>
void add_in_place(Executor& exec, ConstTensorView src, TensorView dst);
template <typename T>
void scale_in_place(Executor& exec, double factor, TensorView dst);
template <typename T>
void add_bias(ConstTensorView bias, TensorView y);
template <typename T>
void bias_grad(ConstTensorView dy, TensorView grad);
template <typename T>
void bias_dropout_add(ConstTensorView x, ConstTensorView bias, ConstTensorView residual, const DropoutSpec& dropout,
                      RowPositions rows, TensorView y);

}  // namespace megatron::kernels::ref
