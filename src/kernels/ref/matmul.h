// Matrix product of the oracle: plain loops in double.
#pragma once

#include "kernels/matmul.h"

namespace megatron::kernels::ref {

/// fp64; products and sums are rounded one by one, in chunks of K like kernels/matmul.h says.
void matmul(Executor& exec, ConstTensorView a, bool transpose_a, ConstTensorView b, bool transpose_b, TensorView c,
            bool accumulate);

}  // namespace megatron::kernels::ref
