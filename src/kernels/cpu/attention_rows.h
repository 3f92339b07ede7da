// The row-wise parts of tiled attention on one instruction set: online softmax, its gradient, dropout, normalisation.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/rng.h"

namespace megatron::kernels::cpu {

/// Attention dropout of one row: counter (sample, head, query, key / 4).
struct RowDropout {
  bool on = false;
  PhiloxKey key{};
  std::uint32_t threshold = 0;  // see kernels/dropout_mask.h
  float scale = 1;
  std::uint32_t sample = 0, head = 0, query = 0;
};

/// One row of a tile of scores: keys [first_key, first_key + end) of a key block in columns [begin, end), multiples of
/// 16 apart from padding; the row sees columns [low, high).
struct ScoreRow {
  float* scores;
  std::int64_t begin, end;
  std::int64_t low, high;
  std::int64_t first_key;  // of column 0; a multiple of 4
  float soft_cap;          // 0: none
  RowDropout dropout;
};

/// What online softmax carries from key block to key block.
struct RowState {
  float max, sum;
};

/// `width` may be any number ≥ 0; pointers need no alignment, and what is written aliases no other operand.
struct AttentionRowKernels {
  /// Scores become probabilities relative to the new maximum, with dropout; `state` and the row of sums `o` follow.
  void (*softmax)(const ScoreRow& row, RowState& state, float* o, std::int64_t width);
  /// scores → kept probabilities P·mask, dp → scale·P·(mask·dp − delta), 0 outside of what the row sees.
  void (*gradient)(const ScoreRow& row, float* dp, float lse, float delta, float scale);
  /// o /= sum (0 for a row that saw no key); returns max + log sum.
  float (*finish)(const RowState& state, float* o, std::int64_t width);
  // Elements of `dtype`: float32, bfloat16 or float16.
  /// Σ a·b over 16 lanes in double.
  float (*dot)(DType dtype, const void* a, const void* b, std::int64_t width);
  /// to = scale·from
  void (*scaled_copy)(DType dtype, const void* from, float scale, float* to, std::int64_t width);
  /// to = from, widened; and rounded once.
  void (*widen)(DType dtype, const void* from, float* to, std::int64_t width);
  void (*narrow)(DType dtype, const float* from, void* to, std::int64_t width);
};

/// The kernels of the instruction set in use. All give the same bits on each.
const AttentionRowKernels& attention_row_kernels();

}  // namespace megatron::kernels::cpu
