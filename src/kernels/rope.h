// Rotary position embedding (arXiv 2104.09864).
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels {

/// Rotates the first 2·n components of every head of x[T, heads, D] in place, n = size(1) of cos/sin tables
/// [max_positions, n] (float32, float64 beside float64 x; x may be 16-bit and is then rounded once). positions: T int64
/// values (null on meta). `interleaved` pairs (2i, 2i+1), else (i, i+n). `inverse` rotates back (the gradient). Row and
/// head strides are free.
void rope_in_place(Executor& exec, TensorView x, ConstTensorView cos, ConstTensorView sin,
                   const std::int64_t* positions, bool interleaved, bool inverse);

}  // namespace megatron::kernels
