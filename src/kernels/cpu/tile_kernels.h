// The inner loops of matrix products on one instruction set: a tile of C from panels of A and B, and packing of panels.
// Each element of a tile is one chain of fused multiply-adds in ascending k, so its bits depend on nothing else.
#pragma once

#include <array>
#include <cstdint>

namespace megatron::kernels::cpu {

/// Distance of the rows of an A panel "by row", in floats: one chunk of K and a line, so that rows fall on distinct
/// cache sets.
constexpr std::int64_t kPanelRowStride = 400;
constexpr std::int64_t kMaxTileRows = 14;
constexpr std::int64_t kMaxPanelColumns = 32;

struct Range {
  std::int64_t begin, end;
};

/// c[i][j] (+)= Σ_k a(i,k)·b[k·b_step + j] for a fixed number of rows and of columns; with `add` the finished sum is
/// added to c. a(i,k) is a[i·kPanelRowStride + k] for panels by row (a_step unused), a[k·a_step + i] by column.
using TileKernel = void (*)(const float* a, std::int64_t a_step, const float* b, std::int64_t b_step,
                            std::int64_t depth, float* c, std::int64_t c_step, bool add);

struct TileSize {
  std::int64_t max_rows;       // rows of the largest tile
  std::int64_t half_columns;   // columns of a narrow tile
  std::int64_t panel_columns;  // columns of a wide tile, and of a packed panel of B
};

struct Tiles : TileSize {
  /// [rows − 1][0: half_columns, 1: panel_columns]
  std::array<std::array<TileKernel, 2>, kMaxTileRows> by_row;
  std::array<std::array<TileKernel, 2>, kMaxTileRows> by_column;
};

struct TileKernels : Tiles {
  /// panel[k·panel_columns + j] = b[j·b_step + k] for j < columns, zero for the other columns.
  void (*pack_transposed)(const float* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panel);
  /// tile[i·kPanelRowStride + k] = a[i·a_step + k] for i < rows and k < depth.
  void (*copy_rows)(const float* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile);
  /// tile[k·tile_step + i] = a[k·a_step + i] for i < rows ≤ max_rows; the rest of a vector may be overwritten.
  void (*pack_columns)(const float* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile,
                       std::int64_t tile_step);
  /// panel p: panels[p·panels_step + k·panel_columns + j] = b[k·b_step + p·panel_columns + j] for columns < `columns`,
  /// zero for the other columns of the last panel.
  void (*pack_rows)(const float* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panels,
                    std::int64_t panels_step);
};

/// The kernels of the instruction set in use.
const TileKernels& tile_kernels();

/// Tiles of the same sizes in which every sum below 2⁻¹²⁶ counts as zero (with its sign; rounded to 24 bits before it
/// is compared). Operands are no subnormals. On x86 they must be run with run_flushing_tile().
const Tiles& flushing_tiles();

/// A tile with any number of columns up to panel_columns, and any rows up to max_rows; what lies right of the tile in C
/// is not touched. b must be readable up to the next full vector of columns.
void run_tile(const Tiles& tiles, bool a_by_row, const float* a, std::int64_t a_step, const float* b,
              std::int64_t b_step, std::int64_t rows, std::int64_t columns, std::int64_t depth, float* c,
              std::int64_t c_step, bool add);

/// The same for flushing_tiles(). What is added to c is not flushed, nor is the result.
void run_flushing_tile(const Tiles& tiles, bool a_by_row, const float* a, std::int64_t a_step, const float* b,
                       std::int64_t b_step, std::int64_t rows, std::int64_t columns, std::int64_t depth, float* c,
                       std::int64_t c_step, bool add);

}  // namespace megatron::kernels::cpu
