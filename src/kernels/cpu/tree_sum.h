// Vector loops of kernels/tree_sum.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace megatron::kernels::cpu {

/// out[i] = a[i] + b[i]; `out` may be a or b.
void add_floats(const float* a, const float* b, float* out, std::int64_t count) noexcept;
/// The same for bfloat16 or float16: added in fp32, rounded once. `out` may be a or b.
void add_halves(DType dtype, const void* a, const void* b, void* out, std::int64_t count) noexcept;
/// 16-bit elements to floats and back, rounded once.
void widen_halves(DType dtype, const void* from, float* to, std::int64_t count) noexcept;
void narrow_halves(DType dtype, const float* from, void* to, std::int64_t count) noexcept;
/// add_floats into two outputs, each of which may be a or b.
void add_floats_twice(const float* a, const float* b, float* out, float* second, std::int64_t count) noexcept;
/// The same; stores past the caches where `out` and `second` (may be null) have the same place in a vector.
void stream_sum(const float* a, const float* b, float* out, float* second, std::int64_t count) noexcept;
/// A copy that stores past the caches.
void stream_copy(const std::byte* from, std::byte* to, std::int64_t bytes) noexcept;

}  // namespace megatron::kernels::cpu
