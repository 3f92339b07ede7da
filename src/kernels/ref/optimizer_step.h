// Optimizer steps and norms of the oracle.
#pragma once

#include "kernels/optimizer_step.h"

namespace megatron::kernels::ref {

struct SgdStep {
  double lr, momentum, weight_decay, grad_scale;
  bool first;
};

/// As kernels/optimizer_step.h, fp64.
void adamw_step(const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v);
void sgd_step(const SgdStep& step, TensorView p, ConstTensorView g, TensorView buf);
void add_squared_norm(ConstTensorView x, ExactSum& sum);
bool all_finite(ConstTensorView x);
std::int64_t count_zeros(ConstTensorView x);

}  // namespace megatron::kernels::ref
