#include "spec/sharding.h"

#include <algorithm>

#include "base/check.h"

namespace megatron::spec {
namespace {

void check_place(int rank, int size) {
  MEGATRON_CHECK_GT(size, 0, "size of an axis");
  MEGATRON_CHECK(rank >= 0 && rank < size, "rank ", rank, " of an axis of size ", size);
}

}  // namespace

std::string Sharding::global_shape_text() const {
  return num_dims == 1 ? str_cat("[", rows, "]") : str_cat("[", rows, ", ", cols, "]");
}

Sharding replicated(int num_dims, std::int64_t rows, std::int64_t cols, int rank) {
  Sharding s{num_dims, rows, cols, rows, cols, {}};
  s.pieces.push_back({{0, 0, rows, cols}, 0, rank == 0});
  return s;
}

Sharding row_shard(int num_dims, std::int64_t rows, std::int64_t padded_rows, std::int64_t cols, int rank, int size) {
  check_place(rank, size);
  MEGATRON_CHECK_LE(rows, padded_rows, "padding never removes rows");
  MEGATRON_CHECK_EQ(padded_rows % size, 0, "rows ", padded_rows, " cut over ", size, " ranks");
  const std::int64_t local = padded_rows / size;
  const std::int64_t first = rank * local;
  const std::int64_t real = std::clamp<std::int64_t>(rows - first, 0, local);
  Sharding s{num_dims, rows, cols, local, cols, {}};
  if (real > 0) s.pieces.push_back({{first, 0, real, cols}, 0, true});
  return s;
}

Sharding column_shard(std::int64_t rows, std::int64_t cols, int rank, int size) {
  check_place(rank, size);
  MEGATRON_CHECK_EQ(cols % size, 0, "columns ", cols, " cut over ", size, " ranks");
  const std::int64_t local = cols / size;
  Sharding s{2, rows, cols, rows, local, {}};
  s.pieces.push_back({{0, rank * local, rows, local}, 0, true});
  return s;
}

Sharding gated_shard(int num_dims, std::int64_t ffn, std::int64_t cols, int rank, int size) {
  check_place(rank, size);
  MEGATRON_CHECK_EQ(ffn % size, 0, "ffn rows ", ffn, " cut over ", size, " ranks");
  const std::int64_t local = ffn / size;
  Sharding s{num_dims, 2 * ffn, cols, 2 * local, cols, {}};
  s.pieces.push_back({{rank * local, 0, local, cols}, 0, true});
  s.pieces.push_back({{ffn + rank * local, 0, local, cols}, local, true});
  return s;
}

Sharding qkv_shard(int num_dims, std::int64_t heads, std::int64_t groups, std::int64_t head_size, std::int64_t cols,
                   int rank, int size) {
  check_place(rank, size);
  MEGATRON_CHECK(groups > 0 && heads % groups == 0, heads, " heads in ", groups, " groups");
  MEGATRON_CHECK_EQ(heads % size, 0, heads, " heads cut over ", size, " ranks");
  const std::int64_t heads_per_group = heads / groups;
  const std::int64_t group_rows = (heads_per_group + 2) * head_size;
  Sharding s{num_dims, groups * group_rows, cols, 0, cols, {}};
  if (groups % size == 0) {
    s.local_rows = groups / size * group_rows;
    s.pieces.push_back({{rank * s.local_rows, 0, s.local_rows, cols}, 0, true});
    return s;
  }
  MEGATRON_CHECK_EQ(size % groups, 0, groups, " groups over ", size, " ranks: one must divide the other");
  const std::int64_t sharers = size / groups;  // ranks that hold the same key and value
  const std::int64_t group = rank / sharers;
  const std::int64_t slice = rank % sharers;
  const std::int64_t query_rows = heads / size * head_size;
  const std::int64_t key_row = group * group_rows + heads_per_group * head_size;
  s.local_rows = query_rows + 2 * head_size;
  s.pieces.push_back({{group * group_rows + slice * query_rows, 0, query_rows, cols}, 0, true});
  s.pieces.push_back({{key_row, 0, 2 * head_size, cols}, query_rows, slice == 0});
  return s;
}

std::vector<FlatPiece> pieces_of_range(const Sharding& sharding, std::int64_t begin, std::int64_t end) {
  const std::int64_t cols = sharding.local_cols;
  std::vector<FlatPiece> result;
  for (const Piece& piece : sharding.pieces) {
    const std::int64_t piece_begin = piece.local_row * cols;
    std::int64_t at = std::max(begin, piece_begin);
    const std::int64_t last = std::min(end, piece_begin + piece.global.rows * cols);
    while (at < last) {
      const std::int64_t row = at / cols, col = at % cols;
      const bool whole_rows = col == 0 && last - at >= cols;
      const std::int64_t rows = whole_rows ? (last - at) / cols : 1;
      const std::int64_t width = whole_rows ? cols : std::min(cols - col, last - at);
      result.push_back(
          {{piece.global.row + row - piece.local_row, piece.global.col + col, rows, width}, at, piece.owned});
      at += rows * width;
    }
  }
  return result;
}

}  // namespace megatron::spec
