#include "kernels/cpu/tile_kernels.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_kernels.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {
// Tile sizes: as many accumulators as fit the registers beside two vectors of B and one broadcast.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 14, kVectors = 2;
#elif HWY_TARGET == HWY_AVX2
constexpr int kRows = 6, kVectors = 2;
#elif HWY_TARGET == HWY_SCALAR
constexpr int kRows = 4, kVectors = 8;
#else
constexpr int kRows = 4, kVectors = 4;
#endif
constexpr std::int64_t kPanel = kVectors * kLanes;

// Where the processor has a mode that flushes sums, tiles rely on it.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
constexpr bool kFlushesByMode = true;
#else
constexpr bool kFlushesByMode = false;
#endif

// a·b + c as such a mode rounds it: rounded with an unlimited exponent, then zero below 2⁻¹²⁶.
HWY_INLINE V flushing_fma(V a, V b, V c) {
  const V sum = fma(a, b, c), size = hn::Abs(sum), least = set(0x1p-126F);
  // A sum that rounding as a subnormal has brought up to 2⁻¹²⁶ may lie below it.
  const V scaled = fma(hn::Mul(a, set(0x1p32F)), hn::Mul(b, set(0x1p32F)), hn::Mul(c, set(0x1p64F)));
  const M rounded_up = hn::And(hn::Eq(size, least), hn::Lt(hn::Abs(scaled), set(0x1p-62F)));
  return hn::IfThenElse(hn::Or(hn::Lt(size, least), rounded_up), hn::And(sum, set(-0.0F)), sum);
}

template <int kHeight, int kWidth, bool kByRow, bool kFlushing>
void tile(const float* HWY_RESTRICT a, std::int64_t a_step, const float* HWY_RESTRICT b, std::int64_t b_step,
          std::int64_t depth, float* HWY_RESTRICT c, std::int64_t c_step, bool add) {
  const D d;
  V sums[kHeight][kWidth];
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) sums[i][j] = hn::Zero(d);
  for (std::int64_t k = 0; k < depth; ++k) {
    V columns[kWidth];
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) columns[j] = hn::LoadU(d, b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kHeight; ++i) {
      const V factor = hn::Set(d, kByRow ? a[i * kPanelRowStride] : a[i]);
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j)
        sums[i][j] = kFlushing ? flushing_fma(factor, columns[j], sums[i][j]) : fma(factor, columns[j], sums[i][j]);
    }
    a += kByRow ? 1 : a_step;
    b += b_step;
  }
  // All loads before the first store: rows of C are often a multiple of 4 KiB apart, where a load waits for an older
  // store that it only seems to overlap.
  if (add) {
#pragma GCC unroll 16
    for (int i = 0; i < kHeight; ++i)
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j) sums[i][j] = hn::Add(hn::LoadU(d, c + i * c_step + j * kLanes), sums[i][j]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) hn::StoreU(sums[i][j], d, c + i * c_step + j * kLanes);
}

// panel[k·kPanel + j] for rows j of the source, element by element.
void pack_transposed_plain(const float* b, std::int64_t b_step, Range rows, Range depth, float* panel) {
  for (std::int64_t k = depth.begin; k < depth.end; ++k)
    for (std::int64_t j = rows.begin; j < rows.end; ++j) panel[k * kPanel + j] = b[j * b_step + k];
}

#if HWY_TARGET == HWY_SCALAR
constexpr std::int64_t kTransposed = 1;  // no blocks: everything goes element by element
void transpose_block(const float*, std::int64_t, float*) {}
#else
// Eight rows at a time whatever the vectors: their cache lines fit the ways of one cache set, even where the distance
// of the rows sends all of them there.
constexpr std::int64_t kTransposed = 8;

// Four elements of eight rows.
void transpose_block(const float* b, std::int64_t b_step, float* to) {
  const hn::CappedTag<float, 8> d8;
  const hn::Half<decltype(d8)> d4;
  const hn::Repartition<double, decltype(d8)> dd;
  const auto rows = [&](std::int64_t r) HWY_ATTR {
    return hn::Combine(d8, hn::LoadU(d4, b + (r + 4) * b_step), hn::LoadU(d4, b + r * b_step));
  };
  const auto r0 = rows(0), r1 = rows(1), r2 = rows(2), r3 = rows(3);
  const auto a = hn::BitCast(dd, hn::InterleaveLower(d8, r0, r1)),
             b2 = hn::BitCast(dd, hn::InterleaveLower(d8, r2, r3));
  const auto c = hn::BitCast(dd, hn::InterleaveUpper(d8, r0, r1)), e = hn::BitCast(dd, hn::InterleaveUpper(d8, r2, r3));
  hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(dd, a, b2)), d8, to);
  hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(dd, a, b2)), d8, to + kPanel);
  hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(dd, c, e)), d8, to + 2 * kPanel);
  hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(dd, c, e)), d8, to + 3 * kPanel);
}
#endif

void pack_transposed(const float* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panel) {
  constexpr std::int64_t kLine = 16;     // floats of a cache line: read at one go
  constexpr std::int64_t kStretch = 96;  // of k: this part of the panel stays in L1 while its columns are filled
  const std::int64_t blocked_columns = kTransposed > 1 ? columns / kTransposed * kTransposed : 0;
  const std::int64_t blocked_depth = depth / kLine * kLine;
  for (std::int64_t first = 0; first < blocked_depth; first += kStretch)
    for (std::int64_t j = 0; j < blocked_columns; j += kTransposed)
      for (std::int64_t k = first; k < std::min(blocked_depth, first + kStretch); k += 4)
        transpose_block(b + j * b_step + k, b_step, panel + k * kPanel + j);
  pack_transposed_plain(b, b_step, {0, blocked_columns}, {blocked_depth, depth}, panel);
  pack_transposed_plain(b, b_step, {blocked_columns, columns}, {0, depth}, panel);
  if (columns == kPanel) return;
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = columns; j < kPanel; ++j) panel[k * kPanel + j] = 0;
}

void pack_rows(const float* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panels,
               std::int64_t panels_step) {
  constexpr std::int64_t kAhead = 8;  // rows: each lies on a page of its own, where no hardware prefetcher follows
  const D d;
  const std::int64_t full = columns / kPanel, rest = columns % kPanel;
  for (std::int64_t k = 0; k < depth; ++k) {
    const float* from = b + k * b_step;
    float* to = panels + k * kPanel;
    if (k + kAhead < depth)
      for (std::int64_t j = 0; j < columns; j += 16) hwy::Prefetch(from + kAhead * b_step + j);
    for (std::int64_t panel = 0; panel < full; ++panel, from += kPanel, to += panels_step)
#pragma GCC unroll 16
      for (int j = 0; j < kVectors; ++j) hn::StoreU(hn::LoadU(d, from + j * kLanes), d, to + j * kLanes);
    if (rest == 0) continue;
    for (std::int64_t j = 0; j < kPanel; ++j) to[j] = j < rest ? from[j] : 0;
  }
}

void copy_rows(const float* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile) {
  constexpr std::int64_t kAhead = 3;  // rows: a row is too short for the hardware to find its successor
  const D d;
  const std::int64_t vectors = depth / kLanes * kLanes;
  for (std::int64_t i = 0; i < rows; ++i, a += a_step, tile += kPanelRowStride) {
    for (std::int64_t k = 0; k < vectors; k += 16) hwy::Prefetch(a + kAhead * a_step + k);
    for (std::int64_t k = 0; k < vectors; k += kLanes) hn::StoreU(hn::LoadU(d, a + k), d, tile + k);
    for (std::int64_t k = vectors; k < depth; ++k) tile[k] = a[k];
  }
}

void pack_columns(const float* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile,
                  std::int64_t tile_step) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t k = 0; k < depth; ++k, a += a_step, tile += tile_step)
    for (std::int64_t i = 0; i < rows; ++i) tile[i] = a[i];
#else
  constexpr std::int64_t kAhead = 16;
  static_assert(kRows <= kLanes, "a column of a tile is one vector");
  const D d;
  const auto valid = hn::FirstN(d, static_cast<std::size_t>(rows));
  for (std::int64_t k = 0; k < depth; ++k, a += a_step, tile += tile_step) {
    hwy::Prefetch(a + kAhead * a_step);
    hn::StoreU(hn::MaskedLoad(valid, d, a), d, tile);
  }
#endif
}

template <bool kByRow, bool kFlushing, std::size_t... kHeights>
constexpr std::array<std::array<TileKernel, 2>, kMaxTileRows> table(std::index_sequence<kHeights...>) {
  return {{{&tile<static_cast<int>(kHeights) + 1, kVectors / 2, kByRow, kFlushing>,
            &tile<static_cast<int>(kHeights) + 1, kVectors, kByRow, kFlushing>}...}};
}

template <bool kFlushing>
constexpr Tiles tiles() {
  return {{kRows, kPanel / 2, kPanel},
          table<true, kFlushing>(std::make_index_sequence<kRows>()),
          table<false, kFlushing>(std::make_index_sequence<kRows>())};
}

const TileKernels* kernels_of_target() {
  static constexpr TileKernels kernels = {tiles<false>(), &pack_transposed, &copy_rows, &pack_columns, &pack_rows};
  return &kernels;
}

const Tiles* flushing_tiles_of_target() {
  static constexpr Tiles flushing = tiles<!kFlushesByMode>();
  return &flushing;
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatron::kernels::cpu {

HWY_EXPORT(kernels_of_target);
HWY_EXPORT(flushing_tiles_of_target);

const TileKernels& tile_kernels() { return *HWY_DYNAMIC_DISPATCH(kernels_of_target)(); }
const Tiles& flushing_tiles() { return *HWY_DYNAMIC_DISPATCH(flushing_tiles_of_target)(); }

namespace {
struct Shaped {
  TileKernel tile;
  std::int64_t columns;  // that it computes
};
Shaped shaped_tile(const Tiles& tiles, bool a_by_row, std::int64_t rows, std::int64_t columns) {
  const bool narrow = columns <= tiles.half_columns;
  const auto& table = a_by_row ? tiles.by_row : tiles.by_column;
  return {table[static_cast<std::size_t>(rows - 1)][narrow ? 0 : 1], narrow ? tiles.half_columns : tiles.panel_columns};
}

void put_edge(const float* edge, std::int64_t rows, std::int64_t columns, float* c, std::int64_t c_step, bool add) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const float sum = edge[i * kMaxPanelColumns + j];
      c[i * c_step + j] = add ? c[i * c_step + j] + sum : sum;
    }
}
}  // namespace

void run_tile(const Tiles& tiles, bool a_by_row, const float* a, std::int64_t a_step, const float* b,
              std::int64_t b_step, std::int64_t rows, std::int64_t columns, std::int64_t depth, float* c,
              std::int64_t c_step, bool add) {
  const Shaped shaped = shaped_tile(tiles, a_by_row, rows, columns);
  if (shaped.columns == columns) {
    shaped.tile(a, a_step, b, b_step, depth, c, c_step, add);
    return;
  }
  // The right edge of C: through a tile of our own, since a full vector would touch what lies beyond.
  alignas(64) float edge[kMaxTileRows * kMaxPanelColumns];
  shaped.tile(a, a_step, b, b_step, depth, edge, kMaxPanelColumns, false);
  put_edge(edge, rows, columns, c, c_step, add);
}

void run_flushing_tile(const Tiles& tiles, bool a_by_row, const float* a, std::int64_t a_step, const float* b,
                       std::int64_t b_step, std::int64_t rows, std::int64_t columns, std::int64_t depth, float* c,
                       std::int64_t c_step, bool add) {
  alignas(64) float edge[kMaxTileRows * kMaxPanelColumns];
  const TileKernel tile = shaped_tile(tiles, a_by_row, rows, columns).tile;
  // The call through a pointer keeps all arithmetic of the tile between the two changes of the mode.
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000;
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlushToZero);
#endif
  tile(a, a_step, b, b_step, depth, edge, kMaxPanelColumns, false);
#if defined(__x86_64__)
  _mm_setcsr(mode);
#endif
  put_edge(edge, rows, columns, c, c_step, add);
}

}  // namespace megatron::kernels::cpu
#endif
