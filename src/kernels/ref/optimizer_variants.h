// Optimizers beside AdamW and SGD, of the oracle.
#pragma once

#include "kernels/optimizer_variants.h"

namespace megatron::kernels::ref {

/// As kernels/optimizer_variants.h, fp64.
void adam_l2_step(const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v);
void sgd_nesterov_step(const NesterovStep& step, TensorView p, ConstTensorView g, TensorView buf);
void lion_step(const LionStep& step, TensorView p, ConstTensorView g, TensorView m);
void weighted_sum(double a, ConstTensorView x, double b, ConstTensorView y, TensorView out);

}  // namespace megatron::kernels::ref
