#include <limits>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_tiles.h"

// A task is a run of queries of one sequence under one key head. It walks the key blocks; each is packed once and used
// by all its query tiles and query heads. A tile's scores stay in L1: scores, softmax, product with the values. The
// sums of a task grow in o itself, or in scratch where o has 16 bits and gets them rounded at the end.

namespace megatron::kernels::cpu {

namespace {
constexpr std::int64_t kKeyBlock = kMatmulChunk;
constexpr std::int64_t kTaskQueries = 448;

struct Task {
  std::int64_t sequence, key_head, first_query, queries;
};

std::int64_t count_tasks(const SequenceRanges& sequences, std::int64_t key_heads) {
  std::int64_t tasks = 0;
  for (std::size_t s = 0; s + 1 < sequences.starts.size(); ++s)
    tasks += ceil_div(sequences.starts[s + 1] - sequences.starts[s], kTaskQueries) * key_heads;
  return tasks;
}

// Late queries see more keys: their tasks come first.
void list_tasks(const SequenceRanges& sequences, std::int64_t key_heads, Task* tasks) {
  for (std::size_t s = 0; s + 1 < sequences.starts.size(); ++s) {
    const std::int64_t queries = sequences.starts[s + 1] - sequences.starts[s];
    for (std::int64_t run = ceil_div(queries, kTaskQueries) - 1; run >= 0; --run)
      for (std::int64_t head = 0; head < key_heads; ++head)
        *tasks++ = {static_cast<std::int64_t>(s), head, run * kTaskQueries,
                    std::min(kTaskQueries, queries - run * kTaskQueries)};
  }
}

// Parts of a thread's scratch, in floats.
struct Workspace {
  std::int64_t keys, values, left, scores, states, stage, out, total;
  std::int64_t out_queries;  // rows of one head in `out`

  Workspace(const HeadSizes& sizes, DType dtype, std::int64_t max_queries)
      : out_queries(dtype == DType::float32 ? 0 : std::min(kTaskQueries, max_queries)) {
    WorkspaceLayout layout;
    keys = layout.take(kKeyBlock * sizes.size);
    values = layout.take(kKeyBlock * round_up(sizes.value_size, kMaxPanelColumns));
    left = layout.take(num_planes(sizes.size) * kMaxTileRows * kPanelRowStride);
    scores = layout.take(kMaxTileRows * kPanelRowStride);
    states = layout.take(2 * kTaskQueries * sizes.group());
    stage = layout.take(stage_floats(dtype, std::max(sizes.size, sizes.value_size)));
    out = layout.take(out_queries * sizes.group() * row_step(sizes.value_size));
    total = layout.total();
  }
};

class Forward {
 public:
  Forward(const AttentionParams& params, const SequenceRanges& sequences, const ConstTensorView& q,
          const ConstTensorView& k, const ConstTensorView& v, const TensorView& o, const TensorView& lse)
      : params_(params),
        sequences_(sequences),
        q_(q),
        k_(k),
        v_(v),
        o_(o),
        lse_(lse),
        sizes_(head_sizes(q, k, v)),
        space_(sizes_, q.dtype, longest_sequence(sequences)) {}

  void run(const Task& task, float* scratch) const {
    const auto s = static_cast<std::size_t>(task.sequence);
    const auto key_starts = key_starts_of(sequences_);
    const std::int64_t keys = key_starts[s + 1] - key_starts[s];
    auto* states = reinterpret_cast<RowState*>(scratch + space_.states);
    begin(task, scratch, states);
    const auto key_rows = head_rows(k_, key_starts[s], task.key_head);
    const auto value_rows = head_rows(v_, key_starts[s], task.key_head);
    const Exponents of_queries = query_exponents(task);
    for (std::int64_t first = 0; first < keys; first += kKeyBlock) {
      const std::int64_t block = std::min(kKeyBlock, keys - first);
      const TileColumns seen = tile_columns(params_, task.first_query, task.queries, keys, first, block);
      if (seen.begin >= seen.end) continue;
      const bool pairs = in_pairs(of_queries, key_rows, first, seen.end);
      if (pairs)
        pack_transposed_pairs(key_rows, first, seen.end, sizes_.size, scratch + space_.stage, scratch + space_.keys);
      else
        pack_transposed_rows(kernels_, row_kernels_, key_rows, first, seen.end, sizes_.size, scratch + space_.stage,
                             scratch + space_.keys);
      pack_row_panels(kernels_, row_kernels_, value_rows, first, seen.end, sizes_.value_size, kKeyBlock,
                      scratch + space_.stage, scratch + space_.values);
      for (std::int64_t member = 0; member < sizes_.group(); ++member)
        for (std::int64_t i = 0; i < task.queries; i += kernels_.max_rows)
          tile(task, member, i, keys, first, block, pairs, scratch, states + member * kTaskQueries + i);
    }
    end(task, scratch, states);
  }

 private:
  std::int64_t first_token(const Task& task) const {
    return sequences_.starts[static_cast<std::size_t>(task.sequence)] + task.first_query;
  }
  std::int64_t head_of(const Task& task, std::int64_t member) const { return task.key_head * sizes_.group() + member; }

  // Of all queries of the task; of none where pairs are out of the question.
  Exponents query_exponents(const Task& task) const {
    Exponents seen;
    if (!may_pair_) return seen;
    for (std::int64_t member = 0; member < sizes_.group(); ++member)
      seen = joined(
          seen, exponents_of(head_rows(q_, first_token(task), head_of(task, member)), 0, task.queries, sizes_.size));
    return seen;
  }

  // Whether the scores of keys [first, first + count) run in pairs.
  bool in_pairs(const Exponents& of_queries, SourceRows key_rows, std::int64_t first, std::int64_t count) const {
    if (!may_pair_) return false;
    return pairs_are_exact(of_queries, static_cast<float>(params_.scale),
                           exponents_of(key_rows, first, count, sizes_.size));
  }

  // Where the task's sums of a query head grow.
  HeadRows<float> out_rows(const Task& task, std::int64_t member, float* scratch) const {
    if (o_.dtype == DType::float32) return head_rows(o_, first_token(task), head_of(task, member));
    const std::int64_t step = row_step(sizes_.value_size);
    return {scratch + space_.out + member * space_.out_queries * step, step};
  }

  void begin(const Task& task, float* scratch, RowState* states) const {
    for (std::int64_t member = 0; member < sizes_.group(); ++member) {
      const auto out = out_rows(task, member, scratch);
      for (std::int64_t i = 0; i < task.queries; ++i) {
        states[member * kTaskQueries + i] = {-std::numeric_limits<float>::infinity(), 0};
        std::fill_n(out.row(i), sizes_.value_size, 0.0F);
      }
    }
  }

  void end(const Task& task, float* scratch, const RowState* states) const {
    const std::int64_t token = first_token(task);
    for (std::int64_t member = 0; member < sizes_.group(); ++member) {
      const std::int64_t head = head_of(task, member);
      const auto out = out_rows(task, member, scratch);
      for (std::int64_t i = 0; i < task.queries; ++i) {
        lse_.data<float>()[(token + i) * lse_.stride(0) + head] =
            row_kernels_.finish(states[member * kTaskQueries + i], out.row(i), sizes_.value_size);
        if (o_.dtype != DType::float32) narrow_row(row_kernels_, out.row(i), o_, token + i, head);
      }
    }
  }

  // Query rows [i, i + max_rows) of the task against one packed key block.
  void tile(const Task& task, std::int64_t member, std::int64_t i, std::int64_t keys, std::int64_t first,
            std::int64_t block, bool pairs, float* scratch, RowState* states) const {
    const std::int64_t rows = std::min(kernels_.max_rows, task.queries - i), query = task.first_query + i;
    const TileColumns columns = tile_columns(params_, query, rows, keys, first, block);
    if (columns.begin >= columns.end) return;
    const std::int64_t head = head_of(task, member);
    const std::int64_t sequence_start = sequences_.starts[static_cast<std::size_t>(task.sequence)];
    float* left = scratch + space_.left;
    float* scores = scratch + space_.scores;
    const SourceRows queries = head_rows(q_, sequence_start, head);
    const auto scale = static_cast<float>(params_.scale);
    if (pairs) {
      pack_left_pairs(queries, query, rows, sizes_.size, scale, left);
      score_tile_in_pairs(left, scratch + space_.keys, rows, columns, sizes_.size, scores);
    } else {
      pack_left_rows(row_kernels_, queries, query, rows, sizes_.size, scale, kMaxTileRows, left);
      score_tile(kernels_, left, kMaxTileRows, scratch + space_.keys, rows, columns, sizes_.size, scores);
    }
    const auto out = out_rows(task, member, scratch);
    for (std::int64_t r = 0; r < rows; ++r) {
      const KeyRange range = visible_keys(params_, query + r, keys);
      const ScoreRow row{scores + r * kPanelRowStride,
                         columns.begin,
                         round_up(columns.end, 16),
                         std::max(range.begin - first, columns.begin),
                         std::min(range.end - first, columns.end),
                         first,
                         static_cast<float>(params_.soft_cap),
                         row_dropout(params_, sequences_, task.sequence, head, query + r)};
      row_kernels_.softmax(row, states[r], out.row(i + r), sizes_.value_size);
    }
    const float* values = scratch + space_.values + columns.begin * kernels_.panel_columns;
    for (std::int64_t e = 0; e < sizes_.value_size; e += kernels_.panel_columns)
      run_tile(kernels_, true, scores + columns.begin, 0, values + e * kKeyBlock, kernels_.panel_columns, rows,
               std::min(kernels_.panel_columns, sizes_.value_size - e), columns.end - columns.begin, out.row(i) + e,
               out.step, true);
  }

  const AttentionParams& params_;
  const SequenceRanges& sequences_;
  const ConstTensorView &q_, &k_, &v_;
  const TensorView &o_, &lse_;
  const HeadSizes sizes_;
  const Workspace space_;
  const bool may_pair_ = may_run_in_pairs(q_.dtype, sizes_.size);
  const TileKernels& kernels_ = tile_kernels();
  const AttentionRowKernels& row_kernels_ = attention_row_kernels();
};
}  // namespace

std::int64_t attention_forward_scratch_bytes(const SequenceRanges& sequences, const ConstTensorView& q,
                                             const ConstTensorView& k, const ConstTensorView& v, int num_threads) {
  const std::int64_t tasks = count_tasks(sequences, k.size(1)) * static_cast<std::int64_t>(sizeof(Task));
  return round_up(tasks, 64) + num_threads *
                                   Workspace(head_sizes(q, k, v), q.dtype, longest_sequence(sequences)).total *
                                   dtype_size(DType::float32);
}

void attention_forward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                       ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView o, TensorView lse,
                       std::byte* scratch) noexcept {
  const std::int64_t count = count_tasks(sequences, k.size(1));
  auto* tasks = reinterpret_cast<Task*>(scratch);
  list_tasks(sequences, k.size(1), tasks);
  auto* floats = reinterpret_cast<float*>(scratch + round_up(count * static_cast<std::int64_t>(sizeof(Task)), 64));
  const std::int64_t own = Workspace(head_sizes(q, k, v), q.dtype, longest_sequence(sequences)).total;
  const Forward forward(params, sequences, q, k, v, o, lse);
  exec.parallel_for(count, [&](std::int64_t i, int worker) { forward.run(tasks[i], floats + worker * own); });
}

}  // namespace megatron::kernels::cpu
