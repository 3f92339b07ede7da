// Softmax pieces on vector units.
#pragma once

#include "kernels/cross_entropy.h"

namespace megatron::kernels::cpu {

// As kernels/cross_entropy.h, fp32 and 16 bits. Row sums in double over 16 lanes.
void row_max(Executor& exec, ConstTensorView logits, std::int64_t valid, TensorView row_max) noexcept;
void softmax_statistics(Executor& exec, ConstTensorView logits, std::int64_t valid, ConstTensorView max,
                        const std::int64_t* labels, std::int64_t first_column, TensorView sum_exp,
                        TensorView target) noexcept;
void softmax_gradient_in_place(Executor& exec, TensorView logits, std::int64_t valid, ConstTensorView max,
                               ConstTensorView sum_exp, const std::int64_t* labels, std::int64_t first_column,
                               ConstTensorView seed) noexcept;

}  // namespace megatron::kernels::cpu
