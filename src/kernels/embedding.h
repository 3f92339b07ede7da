// Lookup in a (vocabulary-sharded) table and its gradient.
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels {

/// y[T,H] = table[ids[t] − first_row], or zero where the id is outside [first_row, first_row + rows). ids: T int64
/// (null on meta).
void embedding_forward(Executor& exec, ConstTensorView table, const std::int64_t* ids, std::int64_t first_row,
                       TensorView y);
/// table_grad[id − first_row] += dy[t], tokens in ascending order for each row (level 0).
void embedding_backward(Executor& exec, ConstTensorView dy, const std::int64_t* ids, std::int64_t first_row,
                        TensorView table_grad);

}  // namespace megatron::kernels
