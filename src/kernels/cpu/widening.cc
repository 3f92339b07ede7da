#include "kernels/cpu/widening.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "base/units.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/widening.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"

#include "kernels/cpu/vector_float16.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

template <typename T>
constexpr bool kInPairs = std::is_same_v<T, BFloat16>;
/// Where k stands in a panel.
template <typename T>
constexpr std::int64_t place(std::int64_t k) {
  return kInPairs<T> ? (k ^ 1) : k;
}

template <typename T>
HWY_INLINE V flushed(V v) {
  if constexpr (!kInPairs<T>) return v;
  return hn::IfThenElse(hn::Lt(hn::Abs(v), set(0x1p-126F)), hn::And(v, set(-0.0F)), v);
}
template <typename T>
HWY_INLINE float flushed_scalar(T element) {
  const float value = element;
  return kInPairs<T> && std::abs(value) < 0x1p-126F ? std::copysign(0.0F, value) : value;
}

template <typename T>
const T* row(const std::byte* matrix, std::int64_t step, std::int64_t index) {
  return reinterpret_cast<const T*>(matrix + index * step);
}

/// `count` elements of successive k, as floats in the order of a panel.
template <typename T>
void widen_row(const T* from, std::int64_t count, float* to) {
  std::int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; k + kLanes <= count; k += kLanes) {
    const V v = flushed<T>(load(from + k));
    store(kInPairs<T> ? hn::Shuffle2301(v) : v, to + k);
  }
#endif
  for (; k < count; ++k) to[place<T>(k)] = flushed_scalar(from[k]);
  if (kInPairs<T> && count % 2 == 1) to[count - 1] = 0;
}

template <typename T>
void copy_rows(const std::byte* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile) {
  for (std::int64_t i = 0; i < rows; ++i) widen_row(row<T>(a, a_step, i), depth, tile + i * kPanelRowStride);
}

/// The first `count` < kLanes elements, the other lanes are zero; converted as a vector, not one by one.
template <typename T>
HWY_INLINE V load_first(const T* from, std::int64_t count) {
  alignas(64) T lanes[kLanes];
#if HWY_TARGET == HWY_AVX3
  const hn::Rebind<std::uint16_t, D> half;
  const auto valid = hn::FirstN(half, static_cast<std::size_t>(count));
  hn::Store(hn::MaskedLoad(valid, half, reinterpret_cast<const std::uint16_t*>(from)), half,
            reinterpret_cast<std::uint16_t*>(lanes));
#else
  std::memset(lanes, 0, sizeof lanes);
  std::memcpy(lanes, from, static_cast<std::size_t>(count) * sizeof(T));
#endif
  return load(lanes);
}

/// `count` elements of one k. Up to a full vector is written where the count is below one.
template <typename T>
void widen_columns(const T* from, std::int64_t count, float* to) {
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    store(flushed<T>(valid == kLanes ? load(from + i) : load_first(from + i, valid)), to + i);
  });
}

template <typename T>
void pack_columns_of_tile(const std::byte* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile,
                          std::int64_t tile_step) {
  for (std::int64_t k = 0; k < depth; ++k) widen_columns(row<T>(a, a_step, k), rows, tile + place<T>(k) * tile_step);
  if (kInPairs<T> && depth % 2 == 1) std::fill_n(tile + (depth - 1) * tile_step, rows, 0.0F);
}

template <typename T>
void pack_columns(const std::byte* a, std::int64_t a_step, TileRows rows, std::int64_t depth, float* tile,
                  std::int64_t tile_step, std::int64_t tiles_step) {
  for_each_tile(a, a_step, sizeof(T), rows, depth, tile, tile_step, tiles_step,
                [&](const std::byte* from, std::int64_t height, std::int64_t count, float* to) {
                  pack_columns_of_tile<T>(from, a_step, height, count, to, tile_step);
                });
}

template <typename T>
void pack_rows(const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panels,
               std::int64_t panels_step) {
  const std::int64_t width = tile_kernels().panel_columns;
  const bool filled = kInPairs<T> && depth % 2 == 1;
  for (std::int64_t j = 0; j < columns; j += width, panels += panels_step) {
    const std::int64_t count = std::min(width, columns - j);
    for (std::int64_t k = 0; k < depth; ++k) {
      float* const to = panels + place<T>(k) * width;
      widen_columns(row<T>(b, b_step, k) + j, count, to);
      std::fill(to + count, to + width, 0.0F);
    }
    if (filled) std::fill_n(panels + (depth - 1) * width, width, 0.0F);
  }
}

template <typename T>
void pack_transposed(const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panel) {
  constexpr std::int64_t kStretch = 96, kStep = kStretch + 16;
  const TileKernels& kernels = tile_kernels();
  alignas(64) float rows[kMaxPanelColumns * kStep];
  for (std::int64_t first = 0; first < depth; first += kStretch) {
    const std::int64_t count = std::min(kStretch, depth - first);
    for (std::int64_t j = 0; j < columns; ++j) widen_row(row<T>(b, b_step, j) + first, count, rows + j * kStep);
    kernels.pack_transposed(rows, kStep, columns, kInPairs<T> ? round_up(count, 2) : count,
                            panel + first * kernels.panel_columns);
  }
}

template <typename T>
void store_tile(const float* sums, std::int64_t step, std::int64_t rows, std::int64_t columns, std::byte* c,
                std::int64_t c_step) {
  for (std::int64_t i = 0; i < rows; ++i, sums += step, c += c_step) {
    T* const to = reinterpret_cast<T*>(c);
    for_each_vector(columns, [&](std::int64_t j, std::int64_t valid)
                                 HWY_ATTR { store_valid(load_valid(sums + j, valid), to + j, valid); });
  }
}

template <typename T>
constexpr Widening widening_of() {
  return {{sizeof(T), 1, kInPairs<T> ? 2 : 1, kPanelRowStride, &copy_rows<T>, &pack_columns<T>, &pack_transposed<T>,
           &pack_rows<T>},
          &store_tile<T>};
}

const Widening* widening_of_target(DType operands) {
  static constexpr Widening pairs = widening_of<BFloat16>(), halves = widening_of<Float16>();
  return operands == DType::bfloat16 ? &pairs : &halves;
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatron::kernels::cpu {

HWY_EXPORT(widening_of_target);

const Widening& widening(DType operands) { return *HWY_DYNAMIC_DISPATCH(widening_of_target)(operands); }

}  // namespace megatron::kernels::cpu
#endif
