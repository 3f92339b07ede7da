// Rotary embedding on vector units.
#pragma once

#include "kernels/rope.h"

namespace megatron::kernels::cpu {

/// As kernels/rope.h, fp32 and 16 bits.
void rope_in_place(Executor& exec, TensorView x, ConstTensorView cos, ConstTensorView sin,
                   const std::int64_t* positions, bool interleaved, bool inverse) noexcept;

}  // namespace megatron::kernels::cpu
