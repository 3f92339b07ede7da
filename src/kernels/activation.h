// Point-wise non-linearities of the MLP, plain and gated.
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels {

// All operands of a call have one dtype: float32, float64 (the oracle), bfloat16 or float16. 16-bit values are widened,
// computed with as the float32 kernel does, and rounded once to nearest even.

enum class ActivationKind : std::uint8_t { gelu_tanh, gelu_erf, squared_relu, silu };

/// y[T,F] = act(x[T,F]). y may alias x.
void activation_forward(Executor& exec, ActivationKind kind, ConstTensorView x, TensorView y);
/// dx = dy·act'(x); dx may alias dy.
void activation_backward(Executor& exec, ActivationKind kind, ConstTensorView dy, ConstTensorView x, TensorView dx);
/// x = [gate | up] of [T,2F]; y[T,F] = act(gate)·up (SwiGLU, GeGLU: arXiv 2002.05202).
void gated_activation_forward(Executor& exec, ActivationKind kind, ConstTensorView x, TensorView y);
/// dx[T,2F] = [dy·up·act'(gate) | dy·act(gate)]; dx may alias x.
void gated_activation_backward(Executor& exec, ActivationKind kind, ConstTensorView dy, ConstTensorView x,
                               TensorView dx);

}  // namespace megatron::kernels
