// The canonical sum over ranks: a left-full binary tree over the index (split at the largest power of two below n);
// and the copies that hand its results on.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace megatron::kernels {

enum class ReduceOp : std::uint8_t { sum, max, min };

/// Whether results go through the caches or past them: the latter where nobody reads them before the caches have
/// forgotten them, and their lines have not been read just before.
enum class Stores : std::uint8_t { cached, streaming };

/// out[i] = tree over inputs[r][i], i < count, for float32, float64, int64, int32 (int sums wrap),
/// bfloat16 and float16 (widened, added in float32, the result rounded once to nearest even). `out` may be one of
/// the inputs. Every input is read once; runs on the calling thread, no scratch, noexcept.
void tree_reduce(ReduceOp op, DType dtype, std::span<const void* const> inputs, void* out, std::int64_t count) noexcept;
/// The same into each of `outputs` (at least one). Each may be one of the inputs; none may overlap another.
void tree_reduce(ReduceOp op, DType dtype, std::span<const void* const> inputs, std::span<void* const> outputs,
                 std::int64_t count, Stores stores) noexcept;

/// std::memcpy that can store past the caches; what it has written is visible to whoever synchronises with the caller.
void copy_bytes(const void* from, void* to, std::int64_t bytes, Stores stores) noexcept;

}  // namespace megatron::kernels
