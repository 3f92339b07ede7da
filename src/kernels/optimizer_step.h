// One pass over parameters: AdamW (arXiv 1711.05101), SGD; and the exact pieces of norms.
#pragma once

#include <span>

#include "base/exact_sum.h"
#include "kernels/executor.h"

namespace megatron::kernels {

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  double bias_correction1, bias_correction2;  // 1 − beta^step
  double grad_scale;                          // multiplies the gradient first (1/tokens, clipping)
};

/// p −= lr·(m̂/(√v̂ + eps) + wd·p) in place on flat fp32 (or fp64) tensors of equal length; the scalars are rounded to
/// the tensors' type.
/// `rounded` (may be a null view; beside fp32 p only): bfloat16 or float16, as long as p and dense; becomes the new p,
/// rounded to nearest even, in the same pass.
void adamw_step(Executor& exec, const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v,
                TensorView rounded = {});
/// g' = grad_scale·g + wd·p; buf = momentum·buf + g' (buf = g' when `first`); p −= lr·buf. buf may be null with
/// momentum 0. `rounded` as above.
void sgd_step(Executor& exec, double lr, double momentum, double weight_decay, double grad_scale, bool first,
              TensorView p, ConstTensorView g, TensorView buf, TensorView rounded = {});
/// Elements whose squares are summed in double before the exact sum; parameters start at multiples of it, so that no
/// border of a shard cuts a segment.
constexpr std::int64_t kNormSegment = 64;
/// Adds the squares of x (flat) to `sum`: each segment of kNormSegment elements, counted from element 0, is summed in
/// double in order, then added exactly. Cuts at multiples of it do not change the result.
/// x, here and below: float32, float64, bfloat16 or float16.
void add_squared_norm(Executor& exec, ConstTensorView x, ExactSum& sum);
/// True if every element is finite.
bool all_finite(Executor& exec, ConstTensorView x);
std::int64_t count_zeros(Executor& exec, ConstTensorView x);

}  // namespace megatron::kernels
