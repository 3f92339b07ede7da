// Optimizer steps and norms on vector units.
#pragma once

#include "kernels/optimizer_step.h"
#include "kernels/ref/optimizer_step.h"

namespace megatron::kernels::cpu {

// As kernels/optimizer_step.h, fp32; the last three also for 16 bits.
void adamw_step(Executor& exec, const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v,
                TensorView rounded) noexcept;
void sgd_step(Executor& exec, const ref::SgdStep& step, TensorView p, ConstTensorView g, TensorView buf,
              TensorView rounded) noexcept;
void add_squared_norm(Executor& exec, ConstTensorView x, ExactSum& sum) noexcept;
bool all_finite(Executor& exec, ConstTensorView x) noexcept;
std::int64_t count_zeros(Executor& exec, ConstTensorView x) noexcept;

}  // namespace megatron::kernels::cpu
