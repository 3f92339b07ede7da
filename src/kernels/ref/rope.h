// Rotary embedding of the oracle.
#pragma once

#include "kernels/rope.h"

namespace megatron::kernels::ref {

/// As kernels/rope.h, fp64.
void rope_in_place(TensorView x, ConstTensorView cos, ConstTensorView sin, const std::int64_t* positions,
                   bool interleaved, bool inverse);

}  // namespace megatron::kernels::ref
