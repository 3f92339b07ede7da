// What forward and backward attention share: heads as strided rows, packing for the tile kernels, ranges of keys.
#pragma once

#include <algorithm>
#include <span>

#include "base/units.h"
#include "kernels/attention_mask.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/dropout_mask.h"
#include "kernels/matmul.h"

namespace megatron::kernels::cpu {

/// Rows of one head of one sequence, `step` floats apart.
template <typename T>
struct HeadRows {
  T* data;
  std::int64_t step;
  T* row(std::int64_t i) const { return data + i * step; }
};

/// Rows of head `head` from token `first_token` on, of a [T, heads, width] float32 view with any token and head
/// strides. Row i is token first_token + i; nothing is copied or checked.
inline HeadRows<const float> head_rows(const ConstTensorView& view, std::int64_t first_token, std::int64_t head) {
  return {view.data<float>() + first_token * view.stride(0) + head * view.stride(1), view.stride(0)};
}
inline HeadRows<float> head_rows(const TensorView& view, std::int64_t first_token, std::int64_t head) {
  return {view.data<float>() + first_token * view.stride(0) + head * view.stride(1), view.stride(0)};
}

/// Heads wider than a chunk of K lie in several planes of `rows` rows, kPanelRowStride apart.
inline std::int64_t num_planes(std::int64_t width) { return ceil_div(width, kMatmulChunk); }

/// Sizes that all parts of one call share.
struct HeadSizes {
  std::int64_t heads, key_heads, size, value_size;
  std::int64_t group() const { return heads / key_heads; }
};

inline HeadSizes head_sizes(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v) {
  return {q.size(1), k.size(1), q.size(2), v.size(2)};
}

/// Lays a thread's workspace out: parts one behind the other, each from a multiple of 16 floats on.
class WorkspaceLayout {
 public:
  /// Where a part of `floats` floats begins.
  std::int64_t take(std::int64_t floats) {
    const std::int64_t begin = total_;
    total_ += round_up(floats, 16);
    return begin;
  }
  std::int64_t total() const { return total_; }

 private:
  std::int64_t total_ = 0;
};

/// Columns that a tile computes, relative to the start of its key block: from the first key that any of its rows sees,
/// rounded down to a multiple of 16, to the end of the last one's.
struct TileColumns {
  std::int64_t begin, end;  // empty if begin ≥ end
};

inline TileColumns tile_columns(const AttentionParams& params, std::int64_t first_query, std::int64_t rows,
                                std::int64_t keys, std::int64_t first_key, std::int64_t block) {
  TileColumns columns{block, 0};
  for (std::int64_t i = first_query; i < first_query + rows; ++i) {
    const KeyRange range = visible_keys(params, i, keys);
    const std::int64_t low = std::max<std::int64_t>(range.begin - first_key, 0);
    const std::int64_t high = std::min(range.end - first_key, block);
    if (low >= high) continue;
    columns.begin = std::min(columns.begin, low / 16 * 16);
    columns.end = std::max(columns.end, high);
  }
  return columns;
}

/// panels[p] = transposed rows [first, first + count): [width][panel_columns] each, padded with zeros to `block` rows.
inline void pack_transposed_rows(const TileKernels& kernels, HeadRows<const float> rows, std::int64_t first,
                                 std::int64_t count, std::int64_t width, float* panels) {
  for (std::int64_t i = 0; i < count; i += kernels.panel_columns)
    kernels.pack_transposed(rows.row(first + i), rows.step, std::min(kernels.panel_columns, count - i), width,
                            panels + i * width);
}

/// panels[p] = columns [p·panel_columns, …) of the rows: [count][panel_columns] each, `block` rows apart.
inline void pack_row_panels(const TileKernels& kernels, HeadRows<const float> rows, std::int64_t first,
                            std::int64_t count, std::int64_t width, std::int64_t block, float* panels) {
  kernels.pack_rows(rows.row(first), rows.step, width, count, panels, kernels.panel_columns * block);
}

/// planes = scale·rows as a left operand by row.
inline void pack_left_rows(const AttentionRowKernels& row_kernels, HeadRows<const float> rows, std::int64_t first,
                           std::int64_t count, std::int64_t width, float scale, std::int64_t block, float* planes) {
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t d = 0; d < width; d += kMatmulChunk)
      row_kernels.scaled_copy(rows.row(first + i) + d, scale, planes + (d / kMatmulChunk * block + i) * kPanelRowStride,
                              std::min(kMatmulChunk, width - d));
}

/// scores[i][begin … end) = left·rightᵀ for `rows` rows; whole tiles are computed, so up to half_columns − 1 columns
/// more on the right and panel_columns − 1 on the left are written.
inline void score_tile(const TileKernels& kernels, const float* left, std::int64_t block, const float* panels,
                       std::int64_t rows, TileColumns columns, std::int64_t width, float* scores) {
  const auto& tiles = kernels.by_row[static_cast<std::size_t>(rows - 1)];
  const std::int64_t pc = kernels.panel_columns;
  for (std::int64_t j = columns.begin / pc * pc; j < columns.end; j += pc) {
    const TileKernel tile = tiles[columns.end - j <= kernels.half_columns ? 0 : 1];
    for (std::int64_t d = 0; d < width; d += kMatmulChunk)
      tile(left + d / kMatmulChunk * block * kPanelRowStride, 0, panels + j * width + d * pc, pc,
           std::min(kMatmulChunk, width - d), scores + j, kPanelRowStride, d > 0);
  }
}

/// Dropout of query row `query` of a sequence.
inline RowDropout row_dropout(const AttentionParams& params, const SequenceRanges& sequences, std::int64_t sequence,
                              std::int64_t head, std::int64_t query) {
  RowDropout dropout;
  if (params.dropout == 0) return dropout;
  const auto s = static_cast<std::size_t>(sequence);
  const auto counter =
      attention_dropout_counter(sequences.sample[s], params.first_head + head, sequences.first_position[s] + query, 0);
  dropout = {true,
             params.dropout_key,
             dropout_threshold(params.dropout),
             static_cast<float>(1 / (1 - params.dropout)),
             counter[0],
             counter[1],
             counter[2]};
  return dropout;
}

/// Row ranges of the keys, as SequenceRanges::starts has those of the queries; borrows from `sequences`.
inline std::span<const std::int64_t> key_starts_of(const SequenceRanges& sequences) {
  return sequences.key_starts.empty() ? sequences.starts : sequences.key_starts;
}

}  // namespace megatron::kernels::cpu
