#include "kernels/cpu/tree_sum.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tree_sum.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

constexpr std::int64_t kVectorBytes = kLanes * static_cast<std::int64_t>(sizeof(float));

void add(const float* a, const float* b, float* out, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const V low = hn::Add(load(a + i), load(b + i)), high = hn::Add(load(a + i + kLanes), load(b + i + kLanes));
    store(low, out + i);
    store(high, out + i + kLanes);
  }
  for (; i < count; ++i) out[i] = a[i] + b[i];
}

void add_in_16_bits(DType dtype, const void* a, const void* b, void* out, std::int64_t count) {
  with_type(dtype, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const T *left = static_cast<const T*>(a), *right = static_cast<const T*>(b);
    T* sum = static_cast<T*>(out);
    for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
      store_valid(hn::Add(load_valid(left + i, valid), load_valid(right + i, valid)), sum + i, valid);
    });
  });
}

void widen_terms(DType dtype, const void* from, float* to, std::int64_t count) {
  with_type(dtype, [&](auto type) HWY_ATTR { convert(static_cast<const decltype(type)*>(from), to, count); });
}

void narrow_sums(DType dtype, const float* from, void* to, std::int64_t count) {
  with_type(dtype, [&](auto type) HWY_ATTR { convert(from, static_cast<decltype(type)*>(to), count); });
}

void add_twice(const float* a, const float* b, float* out, float* second, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const V low = hn::Add(load(a + i), load(b + i)), high = hn::Add(load(a + i + kLanes), load(b + i + kLanes));
    store(low, out + i);
    store(low, second + i);
    store(high, out + i + kLanes);
    store(high, second + i + kLanes);
  }
  for (; i < count; ++i) out[i] = second[i] = a[i] + b[i];
}

void stream(const float* a, const float* b, float* out, float* second, std::int64_t count) {
  const auto place = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p) % kVectorBytes; };
  std::int64_t i = 0;
  for (; i < count && place(out + i) != 0; ++i) {
    const float sum = a[i] + b[i];
    out[i] = sum;
    if (second != nullptr) second[i] = sum;
  }
  for (; i + kLanes <= count; i += kLanes) {
    const V sum = hn::Add(load(a + i), load(b + i));
    hn::Stream(sum, D(), out + i);
    if (second != nullptr) hn::Stream(sum, D(), second + i);
  }
  hwy::FlushStream();
  for (; i < count; ++i) {
    const float sum = a[i] + b[i];
    out[i] = sum;
    if (second != nullptr) second[i] = sum;
  }
}

void copy_past_caches(const std::byte* from, std::byte* to, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> tag;
  const auto* source = reinterpret_cast<const std::uint8_t*>(from);
  auto* out = reinterpret_cast<std::uint8_t*>(to);
  const auto step = static_cast<std::int64_t>(hn::Lanes(tag));
  const std::int64_t skew = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to)) % step;
  std::int64_t i = std::min(bytes, skew == 0 ? 0 : step - skew);
  std::memcpy(to, from, static_cast<std::size_t>(i));
  for (; i + step <= bytes; i += step) hn::Stream(hn::LoadU(tag, source + i), tag, out + i);
  hwy::FlushStream();
  std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
}

std::int64_t vector_bytes() { return kVectorBytes; }

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatron::kernels::cpu {

HWY_EXPORT(add);
HWY_EXPORT(add_in_16_bits);
HWY_EXPORT(widen_terms);
HWY_EXPORT(narrow_sums);
HWY_EXPORT(add_twice);
HWY_EXPORT(stream);
HWY_EXPORT(copy_past_caches);
HWY_EXPORT(vector_bytes);

void add_floats(const float* a, const float* b, float* out, std::int64_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(add)(a, b, out, count);
}

void add_halves(DType dtype, const void* a, const void* b, void* out, std::int64_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(add_in_16_bits)(dtype, a, b, out, count);
}

void widen_halves(DType dtype, const void* from, float* to, std::int64_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(widen_terms)(dtype, from, to, count);
}

void narrow_halves(DType dtype, const float* from, void* to, std::int64_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow_sums)(dtype, from, to, count);
}

void add_floats_twice(const float* a, const float* b, float* out, float* second, std::int64_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(add_twice)(a, b, out, second, count);
}

void stream_sum(const float* a, const float* b, float* out, float* second, std::int64_t count) noexcept {
  const auto distance = reinterpret_cast<std::uintptr_t>(out) - reinterpret_cast<std::uintptr_t>(second);
  const auto step = static_cast<std::uintptr_t>(HWY_DYNAMIC_DISPATCH(vector_bytes)());
  if (second != nullptr && distance % step != 0)
    HWY_DYNAMIC_DISPATCH(add_twice)(a, b, out, second, count);
  else
    HWY_DYNAMIC_DISPATCH(stream)(a, b, out, second, count);
}

void stream_copy(const std::byte* from, std::byte* to, std::int64_t bytes) noexcept {
  HWY_DYNAMIC_DISPATCH(copy_past_caches)(from, to, bytes);
}

}  // namespace megatron::kernels::cpu
#endif
