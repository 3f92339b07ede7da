// Lookup in a (vocabulary-sharded) table and its gradient.
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels {

/// y[T,H] = table[ids[t] − first_row], or zero where the id is outside [first_row, first_row + rows). ids: T int64
/// (null on meta). float32, float64, bfloat16 or float16; y may be float32 beside a 16-bit table, which is exact.
void embedding_forward(Executor& exec, ConstTensorView table, const std::int64_t* ids, std::int64_t first_row,
                       TensorView y);
/// table_grad[id − first_row] += dy[t], tokens in ascending order for each row (level 0). table_grad has dy's
/// dtype, float32 for 16-bit dy.
void embedding_backward(Executor& exec, ConstTensorView dy, const std::int64_t* ids, std::int64_t first_row,
                        TensorView table_grad);

}  // namespace megatron::kernels
