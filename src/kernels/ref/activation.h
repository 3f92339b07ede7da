// Activations of the oracle.
#pragma once

#include "kernels/activation.h"

namespace megatron::kernels::ref {

template <typename T>
void activation_forward(ActivationKind kind, ConstTensorView x, TensorView y);
template <typename T>
void activation_backward(ActivationKind kind, ConstTensorView dy, ConstTensorView x, TensorView dx);
template <typename T>
void gated_activation_forward(ActivationKind kind, ConstTensorView x, TensorView y);
template <typename T>
void gated_activation_backward(ActivationKind kind, ConstTensorView dy, ConstTensorView x, TensorView dx);

}  // namespace megatron::kernels::ref
