// Copies on vector units, with ordinary stores or past the caches.
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels::cpu {

/// to = from, flat fp32 tensors of equal length, 64-byte aligned.
void copy_all(Executor& exec, ConstTensorView from, TensorView to, bool past_caches) noexcept;

}  // namespace megatron::kernels::cpu
