#include "kernels/cpu/rope.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

// Rotates the pairs (first[i], second[i]).
template <typename T>
void rotate_halves(T* first, T* second, const float* cos, const float* sin, std::int64_t half, bool inverse) {
  for_each_vector(half, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V a = load_valid(first + i, valid), b = load_valid(second + i, valid);
    const V c = load_valid(cos + i, valid), s0 = load_valid(sin + i, valid);
    const V s = inverse ? hn::Neg(s0) : s0;
    store_valid(fnma(b, s, hn::Mul(a, c)), first + i, valid);
    store_valid(fma(a, s, hn::Mul(b, c)), second + i, valid);
  });
}

// The same for pairs (row[2i], row[2i + 1]), through halves on the stack.
template <typename T>
void rotate_interleaved(T* row, const float* cos, const float* sin, std::int64_t half, bool inverse) {
  constexpr std::int64_t kStep = 128;
  alignas(64) float first[kStep], second[kStep];
  alignas(64) [[maybe_unused]] float widened[2 * kStep];
  for (std::int64_t begin = 0; begin < half; begin += kStep) {
    const std::int64_t count = HWY_MIN(kStep, half - begin);
    float* pairs = nullptr;
    if constexpr (sizeof(T) == sizeof(float)) {
      pairs = row + 2 * begin;
    } else {
      pairs = widened;
      convert(row + 2 * begin, pairs, 2 * count);
    }
    for (std::int64_t i = 0; i < count; ++i) first[i] = pairs[2 * i], second[i] = pairs[2 * i + 1];
    rotate_halves(first, second, cos + begin, sin + begin, count, inverse);
    for (std::int64_t i = 0; i < count; ++i) pairs[2 * i] = first[i], pairs[2 * i + 1] = second[i];
    if constexpr (sizeof(T) != sizeof(float)) convert(pairs, row + 2 * begin, 2 * count);
  }
}

// All heads of a token, `stride` elements apart.
void rotate_heads(DType dtype, void* token, std::int64_t heads, std::int64_t stride, const float* cos, const float* sin,
                  std::int64_t half, bool interleaved, bool inverse) {
  with_type(dtype, [&](auto type) HWY_ATTR {
    auto* row = static_cast<decltype(type)*>(token);
    for (std::int64_t head = 0; head < heads; ++head, row += stride) {
      if (interleaved)
        rotate_interleaved(row, cos, sin, half, inverse);
      else
        rotate_halves(row, row + half, cos, sin, half, inverse);
    }
  });
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/elements.h"
#include "kernels/cpu/parallel_rows.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(rotate_heads);

void rope_in_place(Executor& exec, TensorView x, ConstTensorView cos, ConstTensorView sin,
                   const std::int64_t* positions, bool interleaved, bool inverse) noexcept {
  const std::int64_t half = cos.size(1), heads = x.size(1);
  parallel_rows(exec, x.size(0), heads * 2 * half, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) HWY_DYNAMIC_DISPATCH(rotate_heads)
    (x.dtype, at_element(x, t * x.stride(0)), heads, x.stride(1), cos.data<float>() + positions[t] * cos.stride(0),
     sin.data<float>() + positions[t] * sin.stride(0), half, interleaved, inverse);
  });
}

}  // namespace megatron::kernels::cpu
#endif
