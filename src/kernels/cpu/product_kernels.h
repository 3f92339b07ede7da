// What a matrix product needs for one type of its operands: packing into panels, tiles, and the store of a rounded C.
// Panels consist of units of four bytes: a float, or two bfloat16 of successive k (the lower half has the even k).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/line_walk.h"
#include "kernels/cpu/tile_kernels.h"

namespace megatron::kernels::cpu {

/// Rows cut into tiles: `tall` ones of `height` rows, then `low` ones of one row less.
struct TileRows {
  std::int64_t height, tall, low;
};

/// Calls pack(first byte of the columns, rows, depth, tile) for each tile, some k at a time for all of them: they are
/// contiguous there, and far apart otherwise. For units of one element.
template <typename Pack>
void for_each_tile(const std::byte* a, std::int64_t a_step, std::int64_t element, TileRows rows, std::int64_t depth,
                   float* tile, std::int64_t tile_step, std::int64_t tiles_step, const Pack& pack) {
  constexpr std::int64_t kPackedRows = 4;
  for (std::int64_t k = 0; k < depth; k += kPackedRows, a += kPackedRows * a_step, tile += kPackedRows * tile_step) {
    const std::byte* from = a;
    for (std::int64_t t = 0; t < rows.tall + rows.low; ++t) {
      const std::int64_t height = t < rows.tall ? rows.height : rows.height - 1;
      pack(from, height, std::min(kPackedRows, depth - k), tile + t * tiles_step);
      from += height * element;
    }
  }
}

/// Operands are bytes; their row steps are in bytes, `depth` is in elements of k. An odd depth in pairs is filled up
/// with zero. What is packed for k = 2p and 2p + 1 may stand the other way round within the panel.
struct Packing {
  std::int64_t element_bytes;
  std::int64_t unit_elements;  // elements of k in a unit: 1 or 2
  std::int64_t padded_to;      // multiple of elements of k that a panel holds: 1 or 2
  std::int64_t row_stride;     // units between the rows of a panel of A by row
  /// Rows of A: unit u of row i to tile[i·row_stride + u].
  void (*copy_rows)(const std::byte* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile);
  /// Columns of a transposed A, cut into tiles: unit u of row i of tile t to tile[t·tiles_step + u·tile_step + i]; up
  /// to 16 units are written.
  void (*pack_columns)(const std::byte* a, std::int64_t a_step, TileRows rows, std::int64_t depth, float* tile,
                       std::int64_t tile_step, std::int64_t tiles_step);
  /// Rows of a transposed B: unit u of column j to panel[u·panel_columns + j]; the other columns are zero.
  void (*pack_transposed)(const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth,
                          float* panel);
  /// Rows of B, any number of columns: panels lie panels_step units apart; missing columns of the last one are zero.
  void (*pack_rows)(const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panels,
                    std::int64_t panels_step);
};

/// One tile of C over successive chunks of K.
struct TileRun {
  const float* a;  // panel of the first chunk; the next one a_chunk_step units behind
  std::int64_t a_chunk_step;
  bool a_by_row;
  std::int64_t a_step;  // units: between k in a panel by column, between rows in one by row
  const float* b;       // likewise
  std::int64_t b_chunk_step;
  std::int64_t rows, columns;
  std::int64_t chunks, chunk_units, last_units;
  float* sums;  // of the chunks: C where that is float32, else memory for whole panels of columns
  std::int64_t sums_step;
  bool add;                   // to what is in `sums`
  std::byte* rounded;         // where the sums go in the type of A and B, which leaves `sums` undefined; null: nowhere
  std::int64_t rounded_step;  // bytes; 0 where C is float32
  LineWalk *next_a, *next_b;  // fetched on the way: up to so many lines per chunk
  std::int64_t next_a_lines, next_b_lines;
};

struct ProductKernels {
  TileSize size;
  Packing packing;
  bool in_pairs;       // with the processor's instruction
  const Tiles* tiles;  // of floats; null in pairs
  bool flushing;       // the tiles need run_flushing_tile()
  /// c[i][j] = sums[i·step + j], rounded to the type of A and B; c_step in bytes. Null for float32.
  void (*store_tile)(const float* sums, std::int64_t step, std::int64_t rows, std::int64_t columns, std::byte* c,
                     std::int64_t c_step);
  void run(const TileRun& tile) const;
};

/// For operands of float32, bfloat16 or float16, on the instruction set in use.
ProductKernels product_kernels(DType operands);

}  // namespace megatron::kernels::cpu
