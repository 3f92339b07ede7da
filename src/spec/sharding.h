// Which part of a logical tensor a rank holds: a list of boxes. The only bridge between a layout and the disk, the
// norm, the initial values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace megatron::spec {

/// A block of a one- or two-dimensional tensor: rows [row, row + rows) × columns [col, col + cols).
/// A 1-D tensor of n elements is n rows × 1 column.
struct Box {
  std::int64_t row = 0, col = 0, rows = 0, cols = 0;
  std::int64_t numel() const { return rows * cols; }
  bool operator==(const Box&) const = default;
};

/// One piece of a shard: local rows [local_row, local_row + global.rows) hold the box `global` of the logical tensor.
struct Piece {
  Box global;
  std::int64_t local_row = 0;
  /// True on exactly one of the ranks that hold this box: that one counts it in the norm and writes it to disk.
  bool owned = true;
};

/// How a rank's local tensor of shape [local_rows, local_cols] is laid over the logical tensor.
/// Rows of the local tensor that no piece covers are padding: zero, never trained, never counted, never saved.
struct Sharding {
  int num_dims = 2;                 // of the logical tensor: 1 or 2
  std::int64_t rows = 0, cols = 1;  // logical
  std::int64_t local_rows = 0, local_cols = 1;
  std::vector<Piece> pieces;

  std::int64_t numel() const { return rows * cols; }
  std::int64_t local_numel() const { return local_rows * local_cols; }
  /// "[768, 3072]"
  std::string global_shape_text() const;
};

/// A box of the logical tensor that lies in one run of a shard's elements: those from `local_begin` on, row by row.
struct FlatPiece {
  Box global;
  std::int64_t local_begin = 0;
  bool owned = true;
  std::int64_t local_end() const { return local_begin + global.numel(); }
};
/// Elements [begin, end) of the flat local tensor as boxes, in order; padding is left out. A partial row is a box of
/// its own.
std::vector<FlatPiece> pieces_of_range(const Sharding& sharding, std::int64_t begin, std::int64_t end);

/// The whole tensor on each of `size` ranks of an axis; owned by rank 0.
Sharding replicated(int num_dims, std::int64_t rows, std::int64_t cols, int rank);
/// Rows cut into `size` equal parts (column-parallel weight or bias; vocabulary-parallel table). `rows` may be smaller
/// than `padded_rows` (vocabulary): the rest is padding.
Sharding row_shard(int num_dims, std::int64_t rows, std::int64_t padded_rows, std::int64_t cols, int rank, int size);
/// Columns cut into `size` equal parts (row-parallel weight).
Sharding column_shard(std::int64_t rows, std::int64_t cols, int rank, int size);
/// fc1 of a gated MLP: the logical tensor is [all gate rows; all up rows], the shard [gate_r; up_r].
Sharding gated_shard(int num_dims, std::int64_t ffn, std::int64_t cols, int rank, int size);
/// linear_qkv: per group [query heads | key | value]. With fewer groups than ranks each rank holds its slice of query
/// heads and the whole key and value rows of its group; these are owned by the first of the ranks that share them.
Sharding qkv_shard(int num_dims, std::int64_t heads, std::int64_t groups, std::int64_t head_size, std::int64_t cols,
                   int rank, int size);

}  // namespace megatron::spec
