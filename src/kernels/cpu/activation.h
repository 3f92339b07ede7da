// Activations on vector units.
#pragma once

#include "kernels/activation.h"

namespace megatron::kernels::cpu {

// As the functions of kernels/activation.h, fp32 and 16 bits. Errors of fp32 against exact arithmetic: below 4 ulp of
// the result, or of 1 times the input where the result is the small difference of a tail.
void activation_forward(Executor& exec, ActivationKind kind, ConstTensorView x, TensorView y) noexcept;
void activation_backward(Executor& exec, ActivationKind kind, ConstTensorView dy, ConstTensorView x,
                         TensorView dx) noexcept;
void gated_activation_forward(Executor& exec, ActivationKind kind, ConstTensorView x, TensorView y) noexcept;
void gated_activation_backward(Executor& exec, ActivationKind kind, ConstTensorView dy, ConstTensorView x,
                               TensorView dx) noexcept;

}  // namespace megatron::kernels::cpu
