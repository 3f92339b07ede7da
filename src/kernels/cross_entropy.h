// Softmax cross-entropy over a vocabulary-sharded row of logits, in the pieces that a parallel head needs between its
// reductions (Megatron-LM, arXiv 1909.08053 §3).
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels {

// logits are float32, float64 (the oracle), bfloat16 or float16; everything per row (max, sums, targets, seeds) is
// float32, or float64 beside float64 logits. Only the gradient of 16-bit logits is rounded, once, to their type.

/// row_max[t] = max over the first `valid` columns of logits[T,V] (−inf when valid is 0).
void row_max(Executor& exec, ConstTensorView logits, std::int64_t valid, TensorView row_max);
/// sum_exp[t] = Σ over valid columns exp(logits − max[t]); target[t] = logits[t, label − first_column] − max[t] if the
/// label lies in this shard, else 0. Sums in fixed lanes. logits are left as they are.
void softmax_statistics(Executor& exec, ConstTensorView logits, std::int64_t valid, ConstTensorView max,
                        const std::int64_t* labels, std::int64_t first_column, TensorView sum_exp, TensorView target);
/// logits → gradient in place: seed[t]·(exp(logits − max)/sum_exp − onehot); columns ≥ valid become 0. A row whose seed
/// is 0 becomes exactly 0, even where its logits are not finite.
void softmax_gradient_in_place(Executor& exec, TensorView logits, std::int64_t valid, ConstTensorView max,
                               ConstTensorView sum_exp, const std::int64_t* labels, std::int64_t first_column,
                               ConstTensorView seed);

}  // namespace megatron::kernels
