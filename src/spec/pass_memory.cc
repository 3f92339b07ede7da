#include "spec/pass_memory.h"

#include <algorithm>
#include <utility>

namespace megatron::spec {
namespace {

bool unique(const Held& block) { return block.use_count() == 1; }

/// The block as it goes into a stash.
Held stashed(Held block) {
  block->set_kind(HeldKind::activations);
  return block;
}

}  // namespace

void PutOffWork::push(Held x, Held dy) {
  if (!deferred_) return;
  for (Held* block : {&x, &dy})
    if (*block != nullptr) kept_.push_back(stashed(std::move(*block)));
}

Held StageMemory::forward(const Held& input, Stash* stash) {
  Held hidden = input;
  if (shape_.has_embedding) hidden = embed();
  std::int64_t done = 0;
  if (stash != nullptr) {
    stash->layers.resize(static_cast<std::size_t>(shape_.layers));
    for (const RecomputeGroup& group : shape_.recompute.groups(shape_.layers)) {
      const int parts = shape_.recompute.distribute_saved_activations ? shape_.block.layout.size : 1;
      stash->group_inputs.push_back(parts == 1 ? stashed(hidden)
                                               : ledger_.take(setting_.bytes.stream * rows_ * width() / parts));
      done = group.first + group.count;
      hidden = forward_layers(std::move(hidden), group.first, done, nullptr);
    }
  }
  hidden = forward_layers(std::move(hidden), done, shape_.layers, stash);
  if (!shape_.has_head) return hidden;
  const Held normed = norm(hidden, stash == nullptr ? nullptr : &stash->final_input,
                           stash == nullptr ? nullptr : &stash->final_statistics);
  hidden.reset();
  return head_forward(normed, stash);
}

Held StageMemory::embed() {
  Held y = ledger_.take(setting_.bytes.stream * setting_.tokens * width());
  if (sharded()) y = stream();
  if (shape_.embedding.positions > 0) stream();
  return y;
}

Held StageMemory::forward_layers(Held hidden, std::int64_t first, std::int64_t end, Stash* stash) {
  for (std::int64_t i = first; i < end; ++i)
    hidden = forward_layer(hidden, stash == nullptr ? nullptr : &stash->layers[static_cast<std::size_t>(i)]);
  return hidden;
}

Held StageMemory::forward_layer(const Held& x, LayerStash* stash) {
  const bool keep = stash != nullptr;
  Held branch = attention(norm(x, keep ? &stash->input : nullptr, keep ? &stash->statistics : nullptr), stash);
  const Held middle = add_residual(std::move(branch));
  branch = mlp(norm(middle, keep ? &stash->middle : nullptr, keep ? &stash->middle_statistics : nullptr), stash);
  if (keep && shape_.recompute.active_modules().layernorm) {
    stash->qkv_input.reset();
    stash->fc1_input.reset();
  }
  return add_residual(std::move(branch));
}

Held StageMemory::norm(const Held& x, Held* kept_x, Held* kept_statistics) {
  Held y = values(rows_ * width());
  Held count = statistics(shape_.block.norm.statistics(rows_));
  if (kept_x != nullptr) {
    *kept_x = stashed(x);
    *kept_statistics = std::move(count);
  }
  return y;
}

Held StageMemory::add_residual(Held branch) {
  return setting_.bytes.value == setting_.bytes.stream ? std::move(branch) : stream();
}

Held StageMemory::attention(const Held& x, LayerStash* stash) {
  const AttentionShape& a = shape_.block.attention;
  const std::int64_t tokens = setting_.tokens;
  const bool keep = stash != nullptr, keep_core = keep && !shape_.recompute.active_modules().core_attn;
  Held qkv = column_forward(x, a.local_qkv_rows(), keep ? &stash->qkv_input : nullptr);
  Held queries, keys, query_statistics;
  if (a.qk_norm) {
    const std::int64_t heads = tokens * a.local_heads(), groups = tokens * a.local_groups();
    queries = values(heads * a.head_size);
    query_statistics = statistics(a.head_norm.statistics(heads));
    if (!keep) query_statistics.reset();
    keys = values(groups * a.head_size);
    Held key_statistics = statistics(a.head_norm.statistics(groups));
    if (keep) {
      key_statistics.reset();
      stash->head_statistics = statistics(a.head_norm.statistics(groups + heads));
      query_statistics.reset();
    }
  }
  const Held output = values(tokens * a.local_width());
  Held log_sum_exp = statistics(tokens * a.local_heads());
  if (keep) {
    stash->qkv = std::move(qkv);
    stash->queries = std::move(queries);
    stash->keys = std::move(keys);
    if (keep_core) stash->log_sum_exp = std::move(log_sum_exp);
  }
  qkv.reset();
  return row_forward(output, keep_core ? &stash->proj_input : nullptr);
}

Held StageMemory::mlp(const Held& x, LayerStash* stash) {
  const bool keep = stash != nullptr && !shape_.recompute.active_modules().mlp;
  const MlpShape& m = shape_.block.mlp;
  Held inner = column_forward(x, m.linear_fc1().local_out, stash != nullptr ? &stash->fc1_input : nullptr);
  const Held activated = !keep && !m.gated ? inner : values(setting_.tokens * m.linear_fc2().local_in);
  if (keep) stash->inner = std::move(inner);
  inner.reset();
  return row_forward(activated, keep ? &stash->fc2_input : nullptr);
}

Held StageMemory::column_forward(const Held& x, std::int64_t out, Held* kept_x) {
  const Held whole = sharded() ? gathered(setting_.bytes.value) : x;
  Held y = values(setting_.tokens * out);
  if (kept_x != nullptr) *kept_x = stashed(x);
  return y;
}

Held StageMemory::row_forward(const Held& x, Held* kept_x) {
  Held y = values(setting_.tokens * width());
  if (kept_x != nullptr) *kept_x = stashed(x);
  return sharded() ? values(rows_ * width()) : std::move(y);
}

Held StageMemory::head_forward(const Held& normed, Stash* stash) {
  const std::int64_t tokens = setting_.tokens, tile = std::min(tokens, HeadShape::kTileTokens);
  Held whole = sharded() ? gathered(setting_.bytes.value) : normed;
  Held loss = statistics(tokens), seed, dx;
  if (stash != nullptr) {
    seed = statistics(tokens);
    dx = values(tokens * width());
  }
  Held logits;
  // The last full tile and what is left set the peaks: of those before it only what they keep counts.
  const std::int64_t skipped = std::max<std::int64_t>(tokens / tile - 1, 0) * tile;
  if (skipped > 0 && stash != nullptr && setting_.weights_apart)
    for (const Held& block : {whole, values(skipped * shape_.head.local_vocab())})
      stash->head_work.push_back(stashed(block));
  for (std::int64_t begin = skipped; begin < tokens; begin += tile) {
    const std::int64_t rows = std::min(tile, tokens - begin);
    if (logits == nullptr || setting_.weights_apart) logits = values(rows * shape_.head.local_vocab());
    const Held most = statistics(rows), sums = statistics(2 * rows);
    if (stash != nullptr && setting_.weights_apart)
      for (const Held& block : {whole, logits}) stash->head_work.push_back(stashed(block));
  }
  logits.reset();
  whole.reset();
  if (stash == nullptr) return loss;
  if (sharded()) dx = values(rows_ * width());
  stash->head_gradient = std::move(dx);
  return loss;
}

Held StageMemory::backward(Held d_output, Stash stash, PutOffWork& work) {
  Held d_hidden = std::move(d_output);
  if (shape_.has_head) {
    for (Held& block : stash.head_work) work.push(std::move(block), nullptr);
    d_hidden = norm_backward(std::move(stash.head_gradient), stash.final_input, stash.final_statistics, work);
  }
  const std::vector<RecomputeGroup> groups = shape_.recompute.groups(shape_.layers);
  const std::int64_t grouped = groups.empty() ? 0 : groups.back().first + groups.back().count;
  d_hidden = backward_layers(std::move(d_hidden), grouped, shape_.layers, stash, work);
  for (std::size_t g = groups.size(); g-- > 0;) {
    repeat_group(groups[g], std::move(stash.group_inputs[g]), stash);
    d_hidden = backward_layers(std::move(d_hidden), groups[g].first, groups[g].first + groups[g].count, stash, work);
  }
  if (!shape_.has_embedding) return d_hidden;
  embed_backward(std::move(d_hidden), work);
  return nullptr;
}

void StageMemory::repeat_group(const RecomputeGroup& group, Held saved, Stash& stash) {
  if (shape_.recompute.distribute_saved_activations && shape_.block.layout.size > 1) saved = stream();
  forward_layers(std::move(saved), group.first, group.first + group.count, &stash);
}

Held StageMemory::backward_layers(Held d_hidden, std::int64_t first, std::int64_t end, Stash& stash, PutOffWork& work) {
  for (std::int64_t i = end; i-- > first;)
    d_hidden = backward_layer(std::move(d_hidden), stash.layers[static_cast<std::size_t>(i)], work);
  return d_hidden;
}

Held StageMemory::backward_layer(Held dy, LayerStash& stash, PutOffWork& work) {
  const bool repeats_norms = shape_.recompute.active_modules().layernorm;
  if (repeats_norms) stash.fc1_input = repeat_norm();
  Held branch = mlp_backward(branch_gradient(dy), stash, work);
  const Held d_middle = norm_backward(std::move(branch), stash.middle, stash.middle_statistics, work);
  dy.reset();
  if (repeats_norms) stash.qkv_input = repeat_norm();
  branch = attention_backward(branch_gradient(d_middle), stash, work);
  return norm_backward(std::move(branch), stash.input, stash.statistics, work);
}

Held StageMemory::norm_backward(Held dy, Held& x, Held& row_statistics, PutOffWork& work) {
  const bool in_place = setting_.bytes.value == setting_.bytes.stream && unique(dy);
  Held dx = in_place ? std::move(dy) : stream();
  Held gradients = statistics(shape_.block.norm.parameters());
  x.reset();
  row_statistics.reset();
  work.push(nullptr, std::move(gradients));
  return dx;
}

Held StageMemory::repeat_norm() {
  Held y = values(rows_ * width());
  statistics(shape_.block.norm.statistics(rows_));
  return y;
}

Held StageMemory::branch_gradient(const Held& dy) { return plain_branch() ? dy : values(rows_ * width()); }

Held StageMemory::mlp_backward(Held dy, LayerStash& stash, PutOffWork& work) {
  const MlpShape& m = shape_.block.mlp;
  if (shape_.recompute.active_modules().mlp) {
    stash.inner = column_forward(stash.fc1_input, m.linear_fc1().local_out, nullptr);
    stash.fc2_input = values(setting_.tokens * m.linear_fc2().local_in);
  }
  Held d_activated = row_backward(std::move(dy), std::move(stash.fc2_input), m.linear_fc2(), work);
  // In place: of a gated layer in the inner features, else in the gradient.
  Held d_inner = m.gated ? std::move(stash.inner) : d_activated;
  d_activated.reset();
  stash.inner.reset();
  return column_backward(std::move(d_inner), std::move(stash.fc1_input), work);
}

Held StageMemory::attention_backward(Held dy, LayerStash& stash, PutOffWork& work) {
  const AttentionShape& a = shape_.block.attention;
  const std::int64_t tokens = setting_.tokens;
  if (shape_.recompute.active_modules().core_attn) {
    stash.proj_input = values(tokens * a.local_width());
    stash.log_sum_exp = statistics(tokens * a.local_heads());
  }
  const Held output = stash.proj_input;
  const Held d_output = row_backward(std::move(dy), std::move(stash.proj_input), a.linear_proj(), work);
  Held d_qkv = values(tokens * a.local_qkv_rows());
  {
    Held d_normed;
    if (a.qk_norm) d_normed = values(tokens * (a.local_heads() + a.local_groups()) * a.head_size);
    for (int norms = a.qk_norm ? 2 : 0; norms > 0; --norms) work.push(nullptr, statistics(a.head_norm.parameters()));
  }
  for (Held* block : {&stash.qkv, &stash.head_statistics, &stash.queries, &stash.keys, &stash.log_sum_exp})
    block->reset();
  return column_backward(std::move(d_qkv), std::move(stash.qkv_input), work);
}

Held StageMemory::column_backward(Held dy, Held x, PutOffWork& work) {
  // Where tokens are sharded, the whole input is gathered meanwhile, and dx is reduced while the weight gradient runs.
  Held whole = sharded() ? gathered(setting_.bytes.value) : std::move(x);
  Held dx = values(setting_.tokens * width());
  Held part = sharded() ? values(rows_ * width()) : nullptr;
  x.reset();
  work.push(std::move(whole), std::move(dy));
  return sharded() ? std::move(part) : std::move(dx);
}

Held StageMemory::row_backward(Held dy, Held x, const LinearShape& linear, PutOffWork& work) {
  Held whole = sharded() ? gathered(setting_.bytes.value) : dy;
  if (linear.bias) work.push(nullptr, statistics(linear.out));
  dy = std::move(whole);
  Held dx = values(setting_.tokens * linear.local_in);
  work.push(std::move(x), std::move(dy));
  return dx;
}

void StageMemory::embed_backward(Held dy, PutOffWork& work) {
  if (setting_.hidden_dropout && !unique(dy)) dy = stream();
  Held whole = sharded() ? gathered(setting_.bytes.stream) : dy;
  if (shape_.embedding.positions > 0) work.push(nullptr, dy);
  dy.reset();
  work.push(nullptr, std::move(whole));
}

namespace {

Held border(MemoryLedger& ledger, const StageShape& shape, const PassSetting& setting, bool is_message) {
  const std::int64_t elements = shape.block.layout.token_rows(setting.tokens) * shape.block.norm.width;
  return ledger.take(setting.bytes.stream * elements, is_message ? HeldKind::communication : HeldKind::activations);
}

StagePasses::Peak peaks(const MemoryLedger& ledger) {
  return {ledger.peak(HeldKind::activations), ledger.peak(HeldKind::communication)};
}

}  // namespace

StagePasses stage_passes(const StageShape& shape, const PassSetting& setting, const StageBorders& borders) {
  StagePasses passes;
  for (const bool deferred : {true, false}) {
    MemoryLedger ledger;
    StageMemory memory(shape, setting, ledger);
    StageMemory::Stash stash;
    {
      Held input = shape.has_embedding ? nullptr : border(ledger, shape, setting, borders.input_is_message);
      const Held output = memory.forward(input, &stash);
    }
    passes.forward = peaks(ledger);
    passes.stash = ledger.live(HeldKind::activations);
    Held gradient = shape.has_head ? nullptr : border(ledger, shape, setting, borders.gradient_is_message);
    ledger.restart_peaks();
    PutOffWork work(deferred);
    memory.backward(std::move(gradient), std::move(stash), work);
    (deferred ? passes.input_backward : passes.backward) = peaks(ledger);
    if (deferred) passes.kept_for_weights = ledger.live(HeldKind::activations);
  }
  return passes;
}

StagePasses::Peak evaluation_peak(const StageShape& shape, const PassSetting& setting, const StageBorders& borders) {
  MemoryLedger ledger;
  StageMemory memory(shape, setting, ledger);
  Held input = shape.has_embedding ? nullptr : border(ledger, shape, setting, borders.input_is_message);
  const Held output = memory.forward(input, nullptr);
  return peaks(ledger);
}

}  // namespace megatron::spec
