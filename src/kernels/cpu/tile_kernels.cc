#include "kernels/cpu/tile_kernels.h"

#include <cmath>
#include <utility>

#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_kernels.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
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
constexpr int kRows = 6, kVectors = 4;
#endif
constexpr std::int64_t kPanel = kVectors * kLanes;

template <int kHeight, int kWidth, bool kByRow>
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
      for (int j = 0; j < kWidth; ++j) sums[i][j] = fma(factor, columns[j], sums[i][j]);
    }
    a += kByRow ? 1 : a_step;
    b += b_step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) {
      float* to = c + i * c_step + j * kLanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sums[i][j]) : sums[i][j], d, to);
    }
  }
}

void pack_transposed(const float* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panel) {
  const std::int64_t vector_depth = depth / 4 * 4, vector_columns = columns / kLanes * kLanes;
  for (std::int64_t k = 0; k < vector_depth; k += 4)
    for (std::int64_t j = 0; j < vector_columns; j += kLanes) {
      V rows[4];
      load_transposed(b + j * b_step + k, b_step, rows);
      for (int i = 0; i < 4; ++i) store(rows[i], panel + (k + i) * kPanel + j);
    }
  for (std::int64_t k = vector_depth; k < depth; ++k)
    for (std::int64_t j = 0; j < vector_columns; ++j) panel[k * kPanel + j] = b[j * b_step + k];
  for (std::int64_t j = vector_columns; j < columns; ++j)
    for (std::int64_t k = 0; k < depth; ++k) panel[k * kPanel + j] = b[j * b_step + k];
  if (columns == kPanel) return;
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = columns; j < kPanel; ++j) panel[k * kPanel + j] = 0;
}

void pack_rows(const float* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panel) {
  if (columns == kPanel) {
    const D d;
    for (std::int64_t k = 0; k < depth; ++k)
#pragma GCC unroll 16
      for (int j = 0; j < kVectors; ++j)
        hn::StoreU(hn::LoadU(d, b + k * b_step + j * kLanes), d, panel + k * kPanel + j * kLanes);
    return;
  }
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t j = 0; j < kPanel; ++j) panel[k * kPanel + j] = j < columns ? b[k * b_step + j] : 0;
}

template <bool kByRow, std::size_t... kHeights>
constexpr std::array<std::array<TileKernel, 2>, kMaxTileRows> table(std::index_sequence<kHeights...>) {
  return {{{&tile<static_cast<int>(kHeights) + 1, kVectors / 2, kByRow>,
            &tile<static_cast<int>(kHeights) + 1, kVectors, kByRow>}...}};
}

const TileKernels* kernels_of_target() {
  static constexpr TileKernels kernels = {kRows,
                                          kPanel / 2,
                                          kPanel,
                                          table<true>(std::make_index_sequence<kRows>()),
                                          table<false>(std::make_index_sequence<kRows>()),
                                          &pack_transposed,
                                          &pack_rows};
  return &kernels;
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatron::kernels::cpu {

HWY_EXPORT(kernels_of_target);

const TileKernels& tile_kernels() { return *HWY_DYNAMIC_DISPATCH(kernels_of_target)(); }

void run_tile(const TileKernels& kernels, bool a_by_row, const float* a, std::int64_t a_step, const float* b,
              std::int64_t b_step, std::int64_t rows, std::int64_t columns, std::int64_t depth, float* c,
              std::int64_t c_step, bool add) {
  const bool narrow = columns <= kernels.half_columns;
  const std::int64_t computed = narrow ? kernels.half_columns : kernels.panel_columns;
  const auto& table = a_by_row ? kernels.by_row : kernels.by_column;
  const TileKernel tile = table[static_cast<std::size_t>(rows - 1)][narrow ? 0 : 1];
  if (computed == columns) {
    tile(a, a_step, b, b_step, depth, c, c_step, add);
    return;
  }
  // The right edge of C: through a tile of our own, since a full vector would touch what lies beyond.
  alignas(64) float edge[kMaxTileRows * kMaxPanelColumns];
  tile(a, a_step, b, b_step, depth, edge, kMaxPanelColumns, false);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const float sum = edge[i * kMaxPanelColumns + j];
      c[i * c_step + j] = add ? c[i * c_step + j] + sum : sum;
    }
}

}  // namespace megatron::kernels::cpu
#endif
