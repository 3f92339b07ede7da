// Softmax pieces of the oracle.
#pragma once

#include "kernels/cross_entropy.h"

namespace megatron::kernels::ref {

/// As kernels/cross_entropy.h, fp64.
void row_max(ConstTensorView logits, std::int64_t valid, TensorView row_max);
void softmax_statistics(ConstTensorView logits, std::int64_t valid, ConstTensorView max, const std::int64_t* labels,
                        std::int64_t first_column, TensorView sum_exp, TensorView target);
void softmax_gradient_in_place(TensorView logits, std::int64_t valid, ConstTensorView max, ConstTensorView sum_exp,
                               const std::int64_t* labels, std::int64_t first_column, ConstTensorView seed);

}  // namespace megatron::kernels::ref
