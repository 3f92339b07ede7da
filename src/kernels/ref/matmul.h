// Matrix product of the oracle: plain loops, chunks of K as the contract of kernels/matmul.h says.
#pragma once

#include "kernels/matmul.h"

namespace megatron::kernels::ref {

template <typename T>
void matmul(Executor& exec, ConstTensorView a, bool transpose_a, ConstTensorView b, bool transpose_b, TensorView c,
            bool accumulate);

}  // namespace megatron::kernels::ref
