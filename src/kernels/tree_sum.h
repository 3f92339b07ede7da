// The canonical sum over ranks: a left-full binary tree over the index (split at the largest power of two below n).
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace megatron::kernels {

enum class ReduceOp : std::uint8_t { sum, max, min };

/// out[i] = tree over inputs[r][i], i < count, for float32, float64, int64, int32 (int sums wrap). `out` may be one of
/// the inputs. Every input is read once; runs on the calling thread, no scratch, noexcept.
void tree_reduce(ReduceOp op, DType dtype, std::span<const void* const> inputs, void* out, std::int64_t count) noexcept;

}  // namespace megatron::kernels
