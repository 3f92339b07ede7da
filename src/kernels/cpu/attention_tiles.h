// What forward and backward attention share: heads as strided rows, packing for the tile kernels, ranges of keys.
#pragma once

#include <algorithm>
#include <span>

#include "base/units.h"
#include "kernels/attention_mask.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pair_kernels.h"
#include "kernels/cpu/pair_rows.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/dropout_mask.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"

namespace megatron::kernels::cpu {

/// Rows of one head of one sequence, `step` floats apart.
template <typename T>
struct HeadRows {
  T* data;
  std::int64_t step;
  T* row(std::int64_t i) const { return data + i * step; }
};

/// The same with elements of float32, bfloat16 or float16.
struct SourceRows {
  const std::byte* data;
  std::int64_t step;  // elements
  DType dtype;
  const void* element(std::int64_t i, std::int64_t d = 0) const { return data + (i * step + d) * dtype_size(dtype); }
};

/// Rows of head `head` from token `first_token` on, of a [T, heads, width] view with any token and head strides. Row i
/// is token first_token + i; nothing is copied or checked.
inline SourceRows head_rows(const ConstTensorView& view, std::int64_t first_token, std::int64_t head) {
  const std::int64_t first = first_token * view.stride(0) + head * view.stride(1);
  return {static_cast<const std::byte*>(at_element(view, first)), view.stride(0), view.dtype};
}
/// Of a float32 view.
inline HeadRows<float> head_rows(const TensorView& view, std::int64_t first_token, std::int64_t head) {
  return {view.data<float>() + first_token * view.stride(0) + head * view.stride(1), view.stride(0)};
}
/// A row of head `head` of a 16-bit view = floats, rounded once.
inline void narrow_row(const AttentionRowKernels& row_kernels, const float* floats, const TensorView& view,
                       std::int64_t token, std::int64_t head) {
  row_kernels.narrow(view.dtype, floats, at_element(view, token * view.stride(0) + head * view.stride(1)),
                     view.size(2));
}

/// Distance of rows of floats in scratch, in floats.
inline std::int64_t row_step(std::int64_t width) { return round_up(width, 16); }
/// Rows that are widened at a time, on the way into a panel.
constexpr std::int64_t kStageRows = kMaxPanelColumns;
/// Floats of such rows: none where nothing has to be widened. Rows do not all fall on one cache set.
inline std::int64_t stage_step(std::int64_t width) { return row_step(width) + 16; }
inline std::int64_t stage_floats(DType dtype, std::int64_t width) {
  return dtype == DType::float32 ? 0 : kStageRows * stage_step(width);
}

/// Rows [first, first + count) as floats: where they are, or up to kStageRows of them widened into `stage`.
inline HeadRows<const float> as_floats(const AttentionRowKernels& row_kernels, SourceRows rows, std::int64_t first,
                                       std::int64_t count, std::int64_t width, float* stage) {
  if (rows.dtype == DType::float32) return {static_cast<const float*>(rows.element(first)), rows.step};
  const std::int64_t step = stage_step(width);
  for (std::int64_t i = 0; i < count; ++i)
    row_kernels.widen(rows.dtype, rows.element(first + i), stage + i * step, width);
  return {stage, step};
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
inline void pack_transposed_rows(const TileKernels& kernels, const AttentionRowKernels& row_kernels, SourceRows rows,
                                 std::int64_t first, std::int64_t count, std::int64_t width, float* stage,
                                 float* panels) {
  for (std::int64_t i = 0; i < count; i += kernels.panel_columns) {
    const std::int64_t columns = std::min(kernels.panel_columns, count - i);
    const auto floats = as_floats(row_kernels, rows, first + i, columns, width, stage);
    kernels.pack_transposed(floats.data, floats.step, columns, width, panels + i * width);
  }
}

/// panels[p] = columns [p·panel_columns, …) of the rows: [count][panel_columns] each, `block` rows apart.
inline void pack_row_panels(const TileKernels& kernels, const AttentionRowKernels& row_kernels, SourceRows rows,
                            std::int64_t first, std::int64_t count, std::int64_t width, std::int64_t block,
                            float* stage, float* panels) {
  const std::int64_t some = rows.dtype == DType::float32 ? count : kStageRows;
  for (std::int64_t i = 0; i < count; i += some) {
    const std::int64_t depth = std::min(some, count - i);
    const auto floats = as_floats(row_kernels, rows, first + i, depth, width, stage);
    kernels.pack_rows(floats.data, floats.step, width, depth, panels + i * kernels.panel_columns,
                      kernels.panel_columns * block);
  }
}

/// planes = scale·rows as a left operand by row.
inline void pack_left_rows(const AttentionRowKernels& row_kernels, SourceRows rows, std::int64_t first,
                           std::int64_t count, std::int64_t width, float scale, std::int64_t block, float* planes) {
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t d = 0; d < width; d += kMatmulChunk)
      row_kernels.scaled_copy(rows.dtype, rows.element(first + i, d), scale,
                              planes + (d / kMatmulChunk * block + i) * kPanelRowStride,
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

/// Scores in pairs of bfloat16 have the bits of score_tile() where pairs_are_exact(): the same sums in half the time.
inline bool may_run_in_pairs(DType dtype, std::int64_t width) {
  return dtype == DType::bfloat16 && width % 2 == 0 && width <= kMatmulChunk && uses_pair_instruction();
}

inline const std::byte* bytes_of(SourceRows rows, std::int64_t i) {
  return static_cast<const std::byte*>(rows.element(i));
}

inline Exponents exponents_of(SourceRows rows, std::int64_t first, std::int64_t count, std::int64_t width) {
  return exponents_of(bytes_of(rows, first), rows.step * dtype_size(rows.dtype), count, width);
}

/// pack_left_rows() in pairs: one plane.
inline void pack_left_pairs(SourceRows rows, std::int64_t first, std::int64_t count, std::int64_t width, float scale,
                            float* plane) {
  for (std::int64_t i = 0; i < count; ++i)
    swap_pairs(bytes_of(rows, first + i), width, scale, plane + i * kPanelRowStride);
}

/// pack_transposed_rows() in pairs: panels of half as many units.
inline void pack_transposed_pairs(SourceRows rows, std::int64_t first, std::int64_t count, std::int64_t width,
                                  float* stage, float* panels) {
  const std::int64_t panel_columns = pair_tile_size().panel_columns, step = row_step(width / 2) + 16;
  for (std::int64_t i = 0; i < count; i += panel_columns) {
    const std::int64_t columns = std::min(panel_columns, count - i);
    for (std::int64_t j = 0; j < columns; ++j) swap_pairs(bytes_of(rows, first + i + j), width, 1, stage + j * step);
    pair_packing().pack_transposed(reinterpret_cast<const std::byte*>(stage), 4 * step, columns, width,
                                   panels + i * (width / 2));
  }
}

/// score_tile() of what these two have packed.
inline void score_tile_in_pairs(const float* left, const float* panels, std::int64_t rows, TileColumns columns,
                                std::int64_t width, float* scores) {
  const TileSize size = pair_tile_size();
  LineWalk nothing;
  for (std::int64_t j = columns.begin / size.panel_columns * size.panel_columns; j < columns.end;
       j += size.panel_columns) {
    const std::int64_t some = columns.end - j <= size.half_columns ? size.half_columns : size.panel_columns;
    run_pair_tile({left,
                   0,
                   true,
                   kPanelRowStride,
                   panels + j * (width / 2),
                   0,
                   rows,
                   some,
                   1,
                   width / 2,
                   width / 2,
                   scores + j,
                   kPanelRowStride,
                   false,
                   nullptr,
                   0,
                   &nothing,
                   &nothing,
                   0,
                   0});
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

/// Queries of the longest sequence.
inline std::int64_t longest_sequence(const SequenceRanges& sequences) {
  std::int64_t longest = 0;
  for (std::size_t s = 0; s + 1 < sequences.starts.size(); ++s)
    longest = std::max(longest, sequences.starts[s + 1] - sequences.starts[s]);
  return longest;
}

}  // namespace megatron::kernels::cpu
