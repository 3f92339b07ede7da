#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_tiles.h"

// A task is one sequence under one key head: it alone writes these dk and dv and the dq of the head's queries. Key
// blocks are the outer loop, query heads and query blocks the inner ones, so that every sum has one fixed order.
// 16-bit gradients are rounded from sums in scratch: those of a key block at its end, those of the queries at the end.

namespace megatron::kernels::cpu {

namespace {
constexpr std::int64_t kKeyBlock = 128;
constexpr std::int64_t kQueryBlock = 112;

// Parts of a thread's scratch, in floats.
struct Workspace {
  std::int64_t keys_t, values_t, keys, left_q, left_do, right_q, right_do, scores, dp, delta, stage, dq, dk, dv, total;

  Workspace(const HeadSizes& sizes, DType dtype, std::int64_t max_queries) {
    WorkspaceLayout layout;
    const std::int64_t size = round_up(sizes.size, kMaxPanelColumns);
    const std::int64_t value_size = round_up(sizes.value_size, kMaxPanelColumns);
    keys_t = layout.take(kKeyBlock * sizes.size);
    values_t = layout.take(kKeyBlock * sizes.value_size);
    keys = layout.take(kKeyBlock * size);
    left_q = layout.take(num_planes(sizes.size) * kQueryBlock * kPanelRowStride);
    left_do = layout.take(num_planes(sizes.value_size) * kQueryBlock * kPanelRowStride);
    right_q = layout.take(kQueryBlock * size);
    right_do = layout.take(kQueryBlock * value_size);
    scores = layout.take(kQueryBlock * kPanelRowStride);
    dp = layout.take(kQueryBlock * kPanelRowStride);
    delta = layout.take(max_queries * sizes.group());
    stage = layout.take(stage_floats(dtype, std::max(sizes.size, sizes.value_size)));
    const bool sums = dtype != DType::float32;
    dq = layout.take(sums ? max_queries * sizes.group() * row_step(sizes.size) : 0);
    dk = layout.take(sums ? kKeyBlock * row_step(sizes.size) : 0);
    dv = layout.take(sums ? kKeyBlock * row_step(sizes.value_size) : 0);
    total = layout.total();
  }
};

struct Operands {
  const AttentionParams& params;
  const SequenceRanges& sequences;
  const ConstTensorView &q, &k, &v, &o, &lse, &d_o;
  const TensorView &dq, &dk, &dv;
};

// One task.
class Backward {
 public:
  Backward(const Operands& operands, const HeadSizes& sizes, const Workspace& space, std::int64_t sequence,
           std::int64_t key_head, float* scratch)
      : x_(operands), sizes_(sizes), space_(space), sequence_(sequence), key_head_(key_head), scratch_(scratch) {
    const auto s = static_cast<std::size_t>(sequence);
    const auto key_starts = key_starts_of(x_.sequences);
    start_ = x_.sequences.starts[s];
    queries_ = x_.sequences.starts[s + 1] - start_;
    key_start_ = key_starts[s];
    keys_ = key_starts[s + 1] - key_start_;
  }

  void run() const {
    begin_queries();
    const auto k = head_rows(x_.k, key_start_, key_head_), v = head_rows(x_.v, key_start_, key_head_);
    const InPairs pairs{in_pairs(x_.q, k, sizes_.size, scale()), in_pairs(x_.d_o, v, sizes_.value_size, 1)};
    for (std::int64_t first = 0; first < keys_; first += kKeyBlock) {
      const std::int64_t block = std::min(kKeyBlock, keys_ - first);
      begin_keys(first, block);
      pack_right(pairs.scores, k, first, block, sizes_.size, at(space_.keys_t));
      pack_right(pairs.dp, v, first, block, sizes_.value_size, at(space_.values_t));
      pack_row_panels(kernels_, row_kernels_, k, first, block, sizes_.size, kKeyBlock, at(space_.stage),
                      at(space_.keys));
      for (std::int64_t member = 0; member < sizes_.group(); ++member)
        for (std::int64_t query = 0; query < queries_; query += kQueryBlock)
          query_block(pairs, member, query, std::min(kQueryBlock, queries_ - query), first, block);
      end_keys(first, block);
    }
    end_queries();
  }

 private:
  float* at(std::int64_t offset) const { return scratch_ + offset; }
  std::int64_t head_of(std::int64_t member) const { return key_head_ * sizes_.group() + member; }

  float scale() const { return static_cast<float>(x_.params.scale); }

  // Which products of rows of bfloat16 run in pairs.
  struct InPairs {
    bool scores, dp;
  };
  // For the rows of all query heads times `right`.
  bool in_pairs(const ConstTensorView& left, SourceRows right, std::int64_t width, float factor) const {
    if (!may_run_in_pairs(right.dtype, width)) return false;
    Exponents of_left;
    for (std::int64_t member = 0; member < sizes_.group(); ++member)
      of_left = joined(of_left, exponents_of(head_rows(left, start_, head_of(member)), 0, queries_, width));
    return pairs_are_exact(of_left, factor, exponents_of(right, 0, keys_, width));
  }
  void pack_right(bool pairs, SourceRows rows, std::int64_t first, std::int64_t count, std::int64_t width,
                  float* panels) const {
    if (pairs)
      pack_transposed_pairs(rows, first, count, width, at(space_.stage), panels);
    else
      pack_transposed_rows(kernels_, row_kernels_, rows, first, count, width, at(space_.stage), panels);
  }
  void pack_left(bool pairs, SourceRows rows, std::int64_t first, std::int64_t count, std::int64_t width, float factor,
                 float* planes) const {
    if (pairs)
      pack_left_pairs(rows, first, count, width, factor, planes);
    else
      pack_left_rows(row_kernels_, rows, first, count, width, factor, kQueryBlock, planes);
  }
  void scores_of(bool pairs, const float* left, const float* right, std::int64_t rows, TileColumns columns,
                 std::int64_t width, float* scores) const {
    if (pairs)
      score_tile_in_pairs(left, right, rows, columns, width, scores);
    else
      score_tile(kernels_, left, kQueryBlock, right, rows, columns, width, scores);
  }

  bool adds_in_place() const { return x_.dq.dtype == DType::float32; }
  // What is added to: the gradients themselves, or scratch where they have 16 bits and get the sums rounded at the end.
  HeadRows<float> dq_rows(std::int64_t member) const {
    if (adds_in_place()) return head_rows(x_.dq, start_, head_of(member));
    const std::int64_t step = row_step(sizes_.size);
    return {at(space_.dq) + member * queries_ * step, step};
  }
  // Row 0 is key `first`, where a key block begins.
  HeadRows<float> dk_rows(std::int64_t first) const {
    if (adds_in_place()) return head_rows(x_.dk, key_start_ + first, key_head_);
    return {at(space_.dk), row_step(sizes_.size)};
  }
  HeadRows<float> dv_rows(std::int64_t first) const {
    if (adds_in_place()) return head_rows(x_.dv, key_start_ + first, key_head_);
    return {at(space_.dv), row_step(sizes_.value_size)};
  }

  // Zero gradients to add to, and delta = Σ do·o of every query.
  void begin_queries() const {
    constexpr std::int64_t kAhead = 12;  // rows: each lies on a page of its own, where no hardware prefetcher follows
    for (std::int64_t member = 0; member < sizes_.group(); ++member) {
      const std::int64_t head = head_of(member);
      const auto dq = dq_rows(member);
      const auto d_o = head_rows(x_.d_o, start_, head), o = head_rows(x_.o, start_, head);
      for (std::int64_t i = 0; i < queries_; ++i) {
        for (std::int64_t d = 0; d < sizes_.value_size; d += 16) {
          __builtin_prefetch(d_o.element(i + kAhead, d));
          __builtin_prefetch(o.element(i + kAhead, d));
        }
        std::fill_n(dq.row(i), sizes_.size, 0.0F);
        at(space_.delta)[member * queries_ + i] =
            row_kernels_.dot(x_.o.dtype, d_o.element(i), o.element(i), sizes_.value_size);
      }
    }
  }
  void begin_keys(std::int64_t first, std::int64_t block) const {
    const auto dk = dk_rows(first), dv = dv_rows(first);
    for (std::int64_t j = 0; j < block; ++j) {
      std::fill_n(dk.row(j), sizes_.size, 0.0F);
      std::fill_n(dv.row(j), sizes_.value_size, 0.0F);
    }
  }
  void end_keys(std::int64_t first, std::int64_t block) const {
    if (adds_in_place()) return;
    const auto dk = dk_rows(first), dv = dv_rows(first);
    for (std::int64_t j = 0; j < block; ++j) {
      narrow_row(row_kernels_, dk.row(j), x_.dk, key_start_ + first + j, key_head_);
      narrow_row(row_kernels_, dv.row(j), x_.dv, key_start_ + first + j, key_head_);
    }
  }
  void end_queries() const {
    if (adds_in_place()) return;
    for (std::int64_t member = 0; member < sizes_.group(); ++member)
      for (std::int64_t i = 0; i < queries_; ++i)
        narrow_row(row_kernels_, dq_rows(member).row(i), x_.dq, start_ + i, head_of(member));
  }

  void query_block(InPairs pairs, std::int64_t member, std::int64_t query, std::int64_t rows, std::int64_t first,
                   std::int64_t block) const {
    const TileColumns seen = tile_columns(x_.params, query, rows, keys_, first, block);
    if (seen.begin >= seen.end) return;
    const std::int64_t head = head_of(member);
    const auto q = head_rows(x_.q, start_, head), d_o = head_rows(x_.d_o, start_, head);
    pack_left(pairs.scores, q, query, rows, sizes_.size, scale(), at(space_.left_q));
    pack_left(pairs.dp, d_o, query, rows, sizes_.value_size, 1, at(space_.left_do));
    pack_row_panels(kernels_, row_kernels_, q, query, rows, sizes_.size, kQueryBlock, at(space_.stage),
                    at(space_.right_q));
    pack_row_panels(kernels_, row_kernels_, d_o, query, rows, sizes_.value_size, kQueryBlock, at(space_.stage),
                    at(space_.right_do));
    for (std::int64_t i = 0; i < rows; i += kernels_.max_rows)
      query_tile(pairs, member, query, i, std::min(kernels_.max_rows, rows - i), first, block);
    // dv += Pᵀ·do, dk += dSᵀ·q
    add_transposed(at(space_.scores), at(space_.right_do), sizes_.value_size, query, rows, first, seen, dv_rows(first));
    add_transposed(at(space_.dp), at(space_.right_q), sizes_.size, query, rows, first, seen, dk_rows(first));
  }

  // Probabilities and score gradients of rows [i, i + rows) of a query block, and dq += dS·k.
  void query_tile(InPairs pairs, std::int64_t member, std::int64_t query_begin, std::int64_t i, std::int64_t rows,
                  std::int64_t first, std::int64_t block) const {
    const std::int64_t query = query_begin + i, head = head_of(member);
    const TileColumns columns = tile_columns(x_.params, query, rows, keys_, first, block);
    float* scores = at(space_.scores) + i * kPanelRowStride;
    float* dp = at(space_.dp) + i * kPanelRowStride;
    const std::int64_t end = round_up(columns.end, 16);
    if (columns.begin < columns.end) {
      scores_of(pairs.scores, at(space_.left_q) + i * kPanelRowStride, at(space_.keys_t), rows, columns, sizes_.size,
                scores);
      scores_of(pairs.dp, at(space_.left_do) + i * kPanelRowStride, at(space_.values_t), rows, columns,
                sizes_.value_size, dp);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const KeyRange range = visible_keys(x_.params, query + r, keys_);
      const ScoreRow row{scores + r * kPanelRowStride,
                         columns.begin,
                         end,
                         std::max(range.begin - first, columns.begin),
                         std::min(range.end - first, columns.end),
                         first,
                         static_cast<float>(x_.params.soft_cap),
                         row_dropout(x_.params, x_.sequences, sequence_, head, query + r)};
      if (columns.begin < columns.end)
        row_kernels_.gradient(row, dp + r * kPanelRowStride,
                              x_.lse.data<float>()[(start_ + query + r) * x_.lse.stride(0) + head],
                              at(space_.delta)[member * queries_ + query + r], scale());
      // The products over queries read whole rows.
      for (float* to : {scores + r * kPanelRowStride, dp + r * kPanelRowStride}) {
        std::fill(to, to + std::min(columns.begin, kKeyBlock), 0.0F);
        std::fill(to + end, to + std::max(end, kKeyBlock), 0.0F);
      }
    }
    if (columns.begin >= columns.end) return;
    const auto dq = dq_rows(member);
    const float* keys = at(space_.keys) + columns.begin * kernels_.panel_columns;
    for (std::int64_t d = 0; d < sizes_.size; d += kernels_.panel_columns)
      run_tile(kernels_, true, dp + columns.begin, 0, keys + d * kKeyBlock, kernels_.panel_columns, rows,
               std::min(kernels_.panel_columns, sizes_.size - d), columns.end - columns.begin, dq.row(query) + d,
               dq.step, true);
  }

  // out[key − first] += Σ over the block's queries of left[query][key]·right[query]. Queries before the first that sees
  // any key of a tile have zeros there and are left out.
  void add_transposed(const float* left, const float* right, std::int64_t width, std::int64_t query, std::int64_t rows,
                      std::int64_t first, TileColumns seen, HeadRows<float> out) const {
    for (std::int64_t j = seen.begin; j < seen.end; j += kernels_.max_rows) {
      const std::int64_t tile_rows = std::min(kernels_.max_rows, seen.end - j);
      const std::int64_t place = first + j - x_.params.causal_offset - query;
      const std::int64_t begin = x_.params.causal ? std::clamp<std::int64_t>(place, 0, rows) : 0;
      if (begin == rows) continue;
      for (std::int64_t d = 0; d < width; d += kernels_.panel_columns)
        run_tile(kernels_, false, left + begin * kPanelRowStride + j, kPanelRowStride,
                 right + d * kQueryBlock + begin * kernels_.panel_columns, kernels_.panel_columns, tile_rows,
                 std::min(kernels_.panel_columns, width - d), rows - begin, out.row(j) + d, out.step, true);
    }
  }

  const Operands& x_;
  const HeadSizes& sizes_;
  const Workspace& space_;
  std::int64_t sequence_, key_head_;
  float* scratch_;
  std::int64_t start_, queries_, key_start_, keys_;
  const TileKernels& kernels_ = tile_kernels();
  const AttentionRowKernels& row_kernels_ = attention_row_kernels();
};
}  // namespace

std::int64_t attention_backward_scratch_bytes(const SequenceRanges& sequences, const ConstTensorView& q,
                                              const ConstTensorView& k, const ConstTensorView& v, int num_threads) {
  return num_threads * Workspace(head_sizes(q, k, v), q.dtype, longest_sequence(sequences)).total *
         dtype_size(DType::float32);
}

void attention_backward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                        ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView o, ConstTensorView lse,
                        ConstTensorView d_o, TensorView dq, TensorView dk, TensorView dv, std::byte* scratch) noexcept {
  const Operands operands{params, sequences, q, k, v, o, lse, d_o, dq, dk, dv};
  const HeadSizes sizes = head_sizes(q, k, v);
  const Workspace space(sizes, q.dtype, longest_sequence(sequences));
  const auto count = static_cast<std::int64_t>(sequences.starts.size() - 1);
  exec.parallel_for(count * sizes.key_heads, [&](std::int64_t task, int worker) {
    float* own = reinterpret_cast<float*>(scratch) + worker * space.total;
    Backward(operands, sizes, space, task / sizes.key_heads, task % sizes.key_heads, own).run();
  });
}

}  // namespace megatron::kernels::cpu
