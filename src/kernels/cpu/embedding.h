// Lookup and its gradient where a 16-bit operand has to be widened.
#pragma once

#include "kernels/embedding.h"

namespace megatron::kernels::cpu {

/// As kernels/embedding.h, for a 16-bit table and float32 y.
void embedding_forward(Executor& exec, ConstTensorView table, const std::int64_t* ids, std::int64_t first_row,
                       TensorView y) noexcept;
/// As kernels/embedding.h, for 16-bit dy.
void embedding_backward(Executor& exec, ConstTensorView dy, const std::int64_t* ids, std::int64_t first_row,
                        TensorView table_grad) noexcept;

}  // namespace megatron::kernels::cpu
