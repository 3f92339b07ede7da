// What a matrix product needs for one type of its operands: packing into panels, tiles, and the store of a rounded C.
// Panels consist of units of four bytes: a float, or two bfloat16 of successive k (the lower half has the even k).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/tile_kernels.h"

namespace megatron::kernels::cpu {

/// Operands are bytes; their row steps are in bytes, `depth` is in elements of k. An odd depth in pairs is filled up
/// with zero. What is packed for k = 2p and 2p + 1 may stand the other way round within the panel.
struct Packing {
  std::int64_t element_bytes;
  std::int64_t unit_elements;  // elements of k in a unit: 1 or 2
  std::int64_t padded_to;      // multiple of elements of k that a panel holds: 1 or 2
  std::int64_t row_stride;     // units between the rows of a panel of A by row
  /// Rows of A: unit u of row i to tile[i·row_stride + u].
  void (*copy_rows)(const std::byte* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile);
  /// Columns of a transposed A, at most max_rows: unit u of row i to tile[u·tile_step + i]; up to 16 units are written.
  void (*pack_columns)(const std::byte* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile,
                       std::int64_t tile_step);
  /// Rows of a transposed B: unit u of column j to panel[u·panel_columns + j]; the other columns are zero.
  void (*pack_transposed)(const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth,
                          float* panel);
  /// Rows of B, any number of columns: panels lie panels_step units apart; missing columns of the last one are zero.
  void (*pack_rows)(const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panels,
                    std::int64_t panels_step);
};

struct ProductKernels {
  const Tiles* tiles;
  bool flushing;  // the tiles need run_flushing_tile()
  Packing packing;
  /// c[i][j] = sums[i·step + j], rounded to the type of A and B; c_step in bytes. Null for float32.
  void (*store_tile)(const float* sums, std::int64_t step, std::int64_t rows, std::int64_t columns, std::byte* c,
                     std::int64_t c_step);
};

/// For operands of float32, bfloat16 or float16, on the instruction set in use.
ProductKernels product_kernels(DType operands);

}  // namespace megatron::kernels::cpu
