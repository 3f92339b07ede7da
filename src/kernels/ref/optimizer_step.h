// Optimizer steps and norms of the oracle.
#pragma once

#include "kernels/optimizer_step.h"

namespace megatron::kernels::ref {

struct SgdStep {
  double lr, momentum, weight_decay, grad_scale;
  bool first;
};

template <typename T>
void adamw_step(const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v);
template <typename T>
void sgd_step(const SgdStep& step, TensorView p, ConstTensorView g, TensorView buf);
template <typename T>
void add_squared_norm(ConstTensorView x, ExactSum& sum);
template <typename T>
bool all_finite(ConstTensorView x);
template <typename T>
std::int64_t count_zeros(ConstTensorView x);

}  // namespace megatron::kernels::ref
