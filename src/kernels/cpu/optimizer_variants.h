// Optimizers beside AdamW and SGD, on vector units.
#pragma once

#include "kernels/optimizer_variants.h"

namespace megatron::kernels::cpu {

// As kernels/optimizer_variants.h, fp32.
void adam_l2_step(Executor& exec, const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v,
                  TensorView rounded) noexcept;
void sgd_nesterov_step(Executor& exec, const NesterovStep& step, TensorView p, ConstTensorView g, TensorView buf,
                       TensorView rounded) noexcept;
void lion_step(Executor& exec, const LionStep& step, TensorView p, ConstTensorView g, TensorView m,
               TensorView rounded) noexcept;
void weighted_sum(Executor& exec, double a, ConstTensorView x, double b, ConstTensorView y, TensorView out,
                  TensorView rounded) noexcept;

}  // namespace megatron::kernels::cpu
