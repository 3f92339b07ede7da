#include <limits>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_tiles.h"

// A task is a run of queries of one sequence under one key head. It walks the key blocks; each is packed once and used
// by all its query tiles and query heads. A tile's scores stay in L1: scores, softmax, product with the values.

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
  std::int64_t keys, values, left, scores, states, total;

  explicit Workspace(const HeadSizes& sizes) {
    WorkspaceLayout layout;
    keys = layout.take(kKeyBlock * sizes.size);
    values = layout.take(kKeyBlock * round_up(sizes.value_size, kMaxPanelColumns));
    left = layout.take(num_planes(sizes.size) * kMaxTileRows * kPanelRowStride);
    scores = layout.take(kMaxTileRows * kPanelRowStride);
    states = layout.take(2 * kTaskQueries * sizes.group());
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
        space_(sizes_) {}

  void run(const Task& task, float* scratch) const {
    const auto s = static_cast<std::size_t>(task.sequence);
    const auto key_starts = key_starts_of(sequences_);
    const std::int64_t keys = key_starts[s + 1] - key_starts[s];
    auto* states = reinterpret_cast<RowState*>(scratch + space_.states);
    begin(task, states);
    const auto key_rows = head_rows(k_, key_starts[s], task.key_head);
    const auto value_rows = head_rows(v_, key_starts[s], task.key_head);
    for (std::int64_t first = 0; first < keys; first += kKeyBlock) {
      const std::int64_t block = std::min(kKeyBlock, keys - first);
      const TileColumns seen = tile_columns(params_, task.first_query, task.queries, keys, first, block);
      if (seen.begin >= seen.end) continue;
      pack_transposed_rows(kernels_, key_rows, first, seen.end, sizes_.size, scratch + space_.keys);
      pack_row_panels(kernels_, value_rows, first, seen.end, sizes_.value_size, kKeyBlock, scratch + space_.values);
      for (std::int64_t member = 0; member < sizes_.group(); ++member)
        for (std::int64_t i = 0; i < task.queries; i += kernels_.max_rows)
          tile(task, member, i, keys, first, block, scratch, states + member * kTaskQueries + i);
    }
    end(task, states);
  }

 private:
  HeadRows<float> out_rows(const Task& task, std::int64_t head) const {
    return head_rows(o_, sequences_.starts[static_cast<std::size_t>(task.sequence)] + task.first_query, head);
  }

  void begin(const Task& task, RowState* states) const {
    for (std::int64_t member = 0; member < sizes_.group(); ++member) {
      const auto out = out_rows(task, task.key_head * sizes_.group() + member);
      for (std::int64_t i = 0; i < task.queries; ++i) {
        states[member * kTaskQueries + i] = {-std::numeric_limits<float>::infinity(), 0};
        std::fill_n(out.row(i), sizes_.value_size, 0.0F);
      }
    }
  }

  void end(const Task& task, const RowState* states) const {
    const std::int64_t token = sequences_.starts[static_cast<std::size_t>(task.sequence)] + task.first_query;
    for (std::int64_t member = 0; member < sizes_.group(); ++member) {
      const std::int64_t head = task.key_head * sizes_.group() + member;
      const auto out = out_rows(task, head);
      for (std::int64_t i = 0; i < task.queries; ++i)
        lse_.data<float>()[(token + i) * lse_.stride(0) + head] =
            row_kernels_.finish(states[member * kTaskQueries + i], out.row(i), sizes_.value_size);
    }
  }

  // Query rows [i, i + max_rows) of the task against one packed key block.
  void tile(const Task& task, std::int64_t member, std::int64_t i, std::int64_t keys, std::int64_t first,
            std::int64_t block, float* scratch, RowState* states) const {
    const std::int64_t rows = std::min(kernels_.max_rows, task.queries - i), query = task.first_query + i;
    const TileColumns columns = tile_columns(params_, query, rows, keys, first, block);
    if (columns.begin >= columns.end) return;
    const std::int64_t head = task.key_head * sizes_.group() + member;
    const std::int64_t sequence_start = sequences_.starts[static_cast<std::size_t>(task.sequence)];
    float* left = scratch + space_.left;
    float* scores = scratch + space_.scores;
    pack_left_rows(row_kernels_, head_rows(q_, sequence_start, head), query, rows, sizes_.size,
                   static_cast<float>(params_.scale), kMaxTileRows, left);
    score_tile(kernels_, left, kMaxTileRows, scratch + space_.keys, rows, columns, sizes_.size, scores);
    const auto out = out_rows(task, head);
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
  const TileKernels& kernels_ = tile_kernels();
  const AttentionRowKernels& row_kernels_ = attention_row_kernels();
};
}  // namespace

std::int64_t attention_forward_scratch_bytes(const SequenceRanges& sequences, const ConstTensorView& q,
                                             const ConstTensorView& k, const ConstTensorView& v, int num_threads) {
  const std::int64_t tasks = count_tasks(sequences, k.size(1)) * static_cast<std::int64_t>(sizeof(Task));
  return round_up(tasks, 64) + num_threads * Workspace(head_sizes(q, k, v)).total * dtype_size(DType::float32);
}

void attention_forward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                       ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView o, TensorView lse,
                       std::byte* scratch) noexcept {
  const std::int64_t count = count_tasks(sequences, k.size(1));
  auto* tasks = reinterpret_cast<Task*>(scratch);
  list_tasks(sequences, k.size(1), tasks);
  auto* floats = reinterpret_cast<float*>(scratch + round_up(count * static_cast<std::int64_t>(sizeof(Task)), 64));
  const std::int64_t own = Workspace(head_sizes(q, k, v)).total;
  const Forward forward(params, sequences, q, k, v, o, lse);
  exec.parallel_for(count, [&](std::int64_t i, int worker) { forward.run(tasks[i], floats + worker * own); });
}

}  // namespace megatron::kernels::cpu
