// Activations of the oracle.
#pragma once

#include "kernels/activation.h"

namespace megatron::kernels::ref {

/// As kernels/activation.h, fp64.
void activation_forward(ActivationKind kind, ConstTensorView x, TensorView y);
void activation_backward(ActivationKind kind, ConstTensorView dy, ConstTensorView x, TensorView dx);
void gated_activation_forward(ActivationKind kind, ConstTensorView x, TensorView y);
void gated_activation_backward(ActivationKind kind, ConstTensorView dy, ConstTensorView x, TensorView dx);

}  // namespace megatron::kernels::ref
