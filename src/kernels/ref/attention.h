// Attention of the oracle, row by row.
#pragma once

#include "kernels/attention.h"

namespace megatron::kernels::ref {

/// As kernels/attention.h, fp64.
void attention_forward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                       ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView o, TensorView lse);
void attention_backward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                        ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView o, ConstTensorView lse,
                        ConstTensorView d_o, TensorView dq, TensorView dk, TensorView dv);

}  // namespace megatron::kernels::ref
