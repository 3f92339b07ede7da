// One pass over parameters for the optimizers beside AdamW and SGD: Adam with L2, Nesterov's SGD, Lion
// (arXiv 2302.06675); and the weighted sum that the flat parts of Muon are made of.
// All tensors are flat, dense, of equal length, fp32 or fp64 alike; scalars are rounded to their type. Element by
// element: no cut of a range enters a bit. `rounded` as in optimizer_step.h: a 16-bit copy of what p (or out) becomes.
#pragma once

#include "kernels/optimizer_step.h"

namespace megatron::kernels {

/// g' = grad_scale·g + wd·p; m, v: moments of g'; p −= lr·m̂/(√v̂ + eps), in place.
void adam_l2_step(Executor& exec, const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v,
                  TensorView rounded = {});

struct NesterovStep {
  double lr, momentum, weight_decay, grad_scale;
  bool first;  // buf = g' instead of momentum·buf + g'
};
/// g' = grad_scale·g + wd·p; buf = momentum·buf + g'; p −= lr·(g' + momentum·buf), in place.
void sgd_nesterov_step(Executor& exec, const NesterovStep& step, TensorView p, ConstTensorView g, TensorView buf,
                       TensorView rounded = {});

struct LionStep {
  double lr, beta1, beta2, weight_decay, grad_scale;
};
/// With g' = grad_scale·g: p −= lr·(sign(β1·m + (1 − β1)·g') + wd·p), then m = β2·m + (1 − β2)·g'. sign(0) = 0.
void lion_step(Executor& exec, const LionStep& step, TensorView p, ConstTensorView g, TensorView m,
               TensorView rounded = {});

/// out = a·x + b·y (a·x where y is a null view), the second product fused into the sum; out may alias x or y.
void weighted_sum(Executor& exec, double a, ConstTensorView x, double b, ConstTensorView y, TensorView out,
                  TensorView rounded = {});

}  // namespace megatron::kernels
