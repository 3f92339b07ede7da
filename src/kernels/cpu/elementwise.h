// Sums, biases and dropout on vector units.
#pragma once

#include "kernels/elementwise.h"

namespace megatron::kernels::cpu {

// As kernels/elementwise.h, fp32 and 16 bits.
/// copy() between different ones of float32, bfloat16, float16.
void convert(Executor& exec, ConstTensorView src, TensorView dst) noexcept;
void add_in_place(Executor& exec, ConstTensorView src, TensorView dst) noexcept;
void add_bias(Executor& exec, ConstTensorView bias, TensorView y) noexcept;
/// Floats of `parts`, the column sums of blocks of tokens.
std::int64_t bias_grad_parts(std::int64_t rows, std::int64_t hidden);
void bias_grad(Executor& exec, ConstTensorView dy, TensorView grad, float* parts) noexcept;
void bias_dropout_add(Executor& exec, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                      const DropoutSpec& dropout, RowPositions rows, TensorView y) noexcept;

}  // namespace megatron::kernels::cpu
