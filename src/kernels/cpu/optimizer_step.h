// Optimizer steps and norms on vector units.
#pragma once

#include "kernels/optimizer_step.h"
#include "kernels/ref/optimizer_step.h"

namespace megatron::kernels::cpu {

// As kernels/optimizer_step.h, fp32.
void adamw_step(Executor& exec, const AdamStep& step, TensorView p, ConstTensorView g, TensorView m,
                TensorView v) noexcept;
void sgd_step(Executor& exec, const ref::SgdStep& step, TensorView p, ConstTensorView g, TensorView buf) noexcept;
void add_squared_norm(Executor& exec, ConstTensorView x, ExactSum& sum) noexcept;
bool all_finite(Executor& exec, ConstTensorView x) noexcept;
std::int64_t count_zeros(Executor& exec, ConstTensorView x) noexcept;

}  // namespace megatron::kernels::cpu
