#include "spec/block_shape.h"

#include <algorithm>

#include "base/check.h"

namespace megatron::spec {
namespace {

std::int64_t part(std::int64_t whole, int size, const char* what) {
  MEGATRON_CHECK(size > 0 && whole % size == 0, what, " ", whole, " cut over ", size, " tensor-parallel ranks");
  return whole / size;
}

/// Input of a column-parallel linear layer forward, and of its gradient's way back: gather, or nothing.
Traffic into_column(const TensorLayout& layout, std::int64_t whole_bytes) {
  return layout.sharded() ? all_gather_traffic(whole_bytes, layout.size) : Traffic{};
}
/// Sum over ranks at the end of a row-parallel linear layer, or of the input gradient of a column-parallel one.
Traffic out_of_row(const TensorLayout& layout, std::int64_t whole_bytes) {
  return layout.sharded() ? reduce_scatter_traffic(whole_bytes, layout.size)
                          : all_reduce_traffic(whole_bytes, layout.size);
}

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  all_reduce += other.all_reduce;
  all_gather += other.all_gather;
  reduce_scatter += other.reduce_scatter;
  return *this;
}
Traffic operator+(Traffic a, const Traffic& b) { return a += b; }

Traffic all_reduce_traffic(std::int64_t bytes, int size) {
  return {.all_reduce = 2 * bytes * (size - 1) / size, .all_gather = 0, .reduce_scatter = 0};
}
Traffic all_gather_traffic(std::int64_t whole_bytes, int size) {
  return {.all_reduce = 0, .all_gather = whole_bytes * (size - 1) / size, .reduce_scatter = 0};
}
Traffic reduce_scatter_traffic(std::int64_t whole_bytes, int size) {
  return {.all_reduce = 0, .all_gather = 0, .reduce_scatter = whole_bytes * (size - 1) / size};
}

LinearShape column_linear(std::int64_t in, std::int64_t out, bool bias, int size) {
  return {in, out, in, part(out, size, "output rows"), bias, false};
}
LinearShape row_linear(std::int64_t in, std::int64_t out, bool bias, int size) {
  return {in, out, part(in, size, "input columns"), out, bias, true};
}

LinearShape AttentionShape::linear_qkv() const {
  return {hidden, (heads + 2 * groups) * head_size, hidden, local_qkv_rows(), qkv_bias, false};
}
LinearShape AttentionShape::linear_proj() const {
  return row_linear(heads * head_size, hidden, proj_bias, layout.size);
}
std::int64_t AttentionShape::parameters() const {
  return linear_qkv().parameters() + linear_proj().parameters() + (qk_norm ? 2 * head_norm.parameters() : 0);
}
std::int64_t AttentionShape::linear_flops(std::int64_t tokens) const {
  return linear_qkv().forward_flops(tokens) + linear_proj().forward_flops(tokens);
}
std::int64_t AttentionShape::core_flops(std::span<const std::int64_t> lengths) const {
  std::int64_t pairs = 0;
  for (const std::int64_t length : lengths) pairs += length * (length + 1) / 2;
  return 4 * pairs * local_heads() * head_size;
}
std::int64_t AttentionShape::stashed_statistics(std::int64_t tokens, bool core) const {
  return (core ? tokens * local_heads() : 0) +
         (qk_norm ? head_norm.statistics(tokens * (local_heads() + local_groups())) : 0);
}
std::int64_t AttentionShape::stash(std::int64_t tokens) const {
  // Projected queries, keys, values; log-sum-exp; output (which is the input of linear_proj).
  std::int64_t elements = tokens * (local_qkv_rows() + local_heads() + local_width());
  if (qk_norm) {
    const std::int64_t normed = local_heads() + local_groups();
    elements += tokens * normed * head_size + head_norm.statistics(tokens * normed);
  }
  return elements;
}

LinearShape MlpShape::linear_fc1() const { return column_linear(hidden, gated ? 2 * ffn : ffn, bias, layout.size); }
LinearShape MlpShape::linear_fc2() const { return row_linear(ffn, hidden, bias, layout.size); }
std::int64_t MlpShape::linear_flops(std::int64_t tokens) const {
  return linear_fc1().forward_flops(tokens) + linear_fc2().forward_flops(tokens);
}
std::int64_t MlpShape::stash(std::int64_t tokens) const {
  return tokens * (linear_fc1().local_out + linear_fc2().local_in);
}

std::int64_t BlockShape::forward_matmul_flops(std::int64_t tokens) const {
  return attention.linear_flops(tokens) + mlp.linear_flops(tokens);
}
std::int64_t BlockShape::stash(std::int64_t tokens, const RecomputeModules& recompute) const {
  const std::int64_t rows = layout.token_rows(tokens);
  // Twice: the residual stream (input of the norm), the norm's output (input of the linear layer), statistics.
  std::int64_t elements = 2 * (rows * norm.width + norm.statistics(rows)) + attention.stash(tokens);
  if (!recompute.layernorm) elements += 2 * rows * norm.width;
  if (!recompute.mlp) elements += mlp.stash(tokens);
  if (recompute.core_attn) elements -= tokens * (attention.local_heads() + attention.local_width());
  return elements;
}
Traffic BlockShape::forward_traffic(std::int64_t tokens, std::int64_t value_bytes) const {
  const std::int64_t bytes = tokens * norm.width * value_bytes;
  const Traffic half = into_column(layout, bytes) + out_of_row(layout, bytes);
  return half + half;
}
Traffic BlockShape::backward_traffic(std::int64_t tokens, std::int64_t value_bytes) const {
  const std::int64_t bytes = tokens * norm.width * value_bytes;
  // The gradient of the row-parallel layer's output is gathered, and the input of the column-parallel one once more.
  const Traffic half = into_column(layout, bytes) + into_column(layout, bytes) + out_of_row(layout, bytes);
  return half + half;
}

Traffic EmbeddingShape::forward_traffic(std::int64_t tokens, std::int64_t stream_bytes) const {
  return out_of_row(layout, tokens * hidden * stream_bytes);
}
Traffic EmbeddingShape::backward_traffic(std::int64_t tokens, std::int64_t stream_bytes) const {
  return into_column(layout, tokens * hidden * stream_bytes);
}

Traffic HeadShape::forward_traffic(std::int64_t tokens, std::int64_t value_bytes, bool training) const {
  const std::int64_t bytes = tokens * hidden * value_bytes;
  Traffic sum = into_column(layout, bytes);
  if (training) sum += out_of_row(layout, bytes);
  for (std::int64_t begin = 0; begin < tokens; begin += kTileTokens) {
    const std::int64_t tile = std::min(kTileTokens, tokens - begin) * ElementBytes::kWide;
    sum += all_reduce_traffic(tile, layout.size) + all_reduce_traffic(2 * tile, layout.size);
  }
  return sum;
}

NormShape norm_shape(const ModelSpec& model) { return {model.normalization, model.hidden_size, model.norm_epsilon}; }

BlockShape block_shape(const ModelSpec& model, TensorLayout layout) {
  MEGATRON_CHECK(model.kv_channels > 0 && model.ffn_hidden_size > 0 && model.num_query_groups > 0,
                 "a model whose derived sizes are not set");
  MEGATRON_CHECK_EQ(model.num_attention_heads % model.num_query_groups, 0, "heads and key/value groups");
  part(model.num_attention_heads, layout.size, "attention heads");
  MEGATRON_CHECK(model.num_query_groups % layout.size == 0 || layout.size % model.num_query_groups == 0,
                 model.num_query_groups, " key/value groups over ", layout.size, " ranks: one must divide the other");
  BlockShape shape;
  shape.norm = norm_shape(model);
  shape.layout = layout;
  shape.attention = {.hidden = model.hidden_size,
                     .heads = model.num_attention_heads,
                     .groups = model.num_query_groups,
                     .head_size = model.kv_channels,
                     .qkv_bias = model.has_qkv_bias(),
                     .proj_bias = model.add_bias_linear,
                     .qk_norm = model.qk_layernorm,
                     .head_norm = {model.normalization, model.kv_channels, model.norm_epsilon},
                     .layout = layout};
  shape.mlp = {model.hidden_size, model.ffn_hidden_size, model.gated_linear_unit, model.add_bias_linear, layout};
  return shape;
}

EmbeddingShape embedding_shape(const ModelSpec& model, TensorLayout layout) {
  part(model.padded_vocab_size, layout.size, "padded vocabulary");
  const bool learned = model.position_embedding == PositionEmbedding::learned_absolute;
  return {model.hidden_size, model.vocab_size, model.padded_vocab_size, learned ? model.max_position_embeddings : 0,
          layout};
}

HeadShape head_shape(const ModelSpec& model, TensorLayout layout) {
  part(model.padded_vocab_size, layout.size, "padded vocabulary");
  return {model.hidden_size, model.vocab_size, model.padded_vocab_size, layout};
}

namespace {

std::int64_t grouped_layers(const StageShape& shape) {
  std::int64_t count = 0;
  for (const RecomputeGroup& group : shape.recompute.groups(shape.layers)) count += group.count;
  return count;
}

}  // namespace

std::int64_t StageShape::parameters() const {
  std::int64_t count = layers * block.parameters();
  if (has_embedding) count += embedding.parameters();
  if (has_head) count += final_norm.parameters() + (head_shares_memory ? 0 : head.parameters());
  return count;
}
std::int64_t StageShape::forward_matmul_flops(std::int64_t tokens) const {
  return layers * block.forward_matmul_flops(tokens) + (has_head ? head.forward_matmul_flops(tokens) : 0);
}
std::int64_t StageShape::recomputed_matmul_flops(std::int64_t tokens) const {
  std::int64_t flops = grouped_layers(*this) * block.forward_matmul_flops(tokens);
  if (recompute.active_modules().mlp) flops += layers * block.mlp.linear_fc1().forward_flops(tokens);
  return flops;
}
std::int64_t StageShape::recomputed_attentions() const {
  return grouped_layers(*this) + (recompute.active_modules().core_attn ? layers : 0);
}
std::int64_t StageShape::stashed_stream(std::int64_t tokens) const {
  // The input of each norm, or of each recomputed group.
  const std::int64_t whole = block.layout.token_rows(tokens) * block.norm.width;
  const std::int64_t part = whole / (recompute.distribute_saved_activations ? block.layout.size : 1);
  return (2 * (layers - grouped_layers(*this)) + (has_head ? 1 : 0)) * whole +
         static_cast<std::int64_t>(recompute.groups(layers).size()) * part;
}
std::int64_t StageShape::stash(std::int64_t tokens, bool weights_apart) const {
  const std::int64_t rows = block.layout.token_rows(tokens);
  const std::int64_t input = rows * block.norm.width / (recompute.distribute_saved_activations ? block.layout.size : 1);
  std::int64_t elements = static_cast<std::int64_t>(recompute.groups(layers).size()) * input;
  elements += (layers - grouped_layers(*this)) * block.stash(tokens, recompute.active_modules());
  if (has_head) elements += rows * final_norm.width + final_norm.statistics(rows) + head.stash(tokens);
  if (has_head && weights_apart) elements += head.stash_for_weights(tokens);
  return elements;
}
std::int64_t StageShape::stashed_statistics(std::int64_t tokens) const {
  const std::int64_t rows = block.layout.token_rows(tokens);
  const std::int64_t layer = 2 * block.norm.statistics(rows) +
                             block.attention.stashed_statistics(tokens, !recompute.active_modules().core_attn);
  return (layers - grouped_layers(*this)) * layer + (has_head ? final_norm.statistics(rows) : 0);
}
std::int64_t StageShape::stash_bytes(std::int64_t tokens, ElementBytes bytes, bool weights_apart) const {
  const std::int64_t stream = stashed_stream(tokens), wide = stashed_statistics(tokens);
  return bytes.value * (stash(tokens, weights_apart) - stream - wide) + bytes.stream * stream +
         ElementBytes::kWide * wide;
}
Traffic StageShape::forward_traffic(std::int64_t tokens, ElementBytes bytes) const {
  Traffic sum;
  for (std::int64_t i = 0; i < layers; ++i) sum += block.forward_traffic(tokens, bytes.value);
  if (has_embedding) sum += embedding.forward_traffic(tokens, bytes.stream);
  if (has_head) sum += head.forward_traffic(tokens, bytes.value);
  return sum;
}
Traffic StageShape::backward_traffic(std::int64_t tokens, ElementBytes bytes) const {
  Traffic sum;
  const std::int64_t whole = tokens * block.norm.width;
  for (std::int64_t i = 0; i < layers; ++i) {
    sum += block.backward_traffic(tokens, bytes.value);
    if (recompute.active_modules().mlp) sum += into_column(block.layout, whole * bytes.value);
  }
  for (const RecomputeGroup& group : recompute.groups(layers)) {
    for (std::int64_t i = 0; i < group.count; ++i) sum += block.forward_traffic(tokens, bytes.value);
    if (recompute.distribute_saved_activations) sum += all_gather_traffic(whole * bytes.stream, block.layout.size);
  }
  if (has_embedding) sum += embedding.backward_traffic(tokens, bytes.stream);
  return sum;
}

StageShape stage_shape(const ModelSpec& model, TensorLayout layout, std::int64_t layers, bool first, bool last,
                       const RecomputeSpec& recompute) {
  StageShape shape;
  shape.block = block_shape(model, layout);
  shape.embedding = embedding_shape(model, layout);
  shape.head = head_shape(model, layout);
  shape.final_norm = norm_shape(model);
  shape.layers = layers;
  shape.has_embedding = first;
  shape.has_head = last;
  shape.head_shares_memory = first && last && model.tied();
  shape.recompute = recompute;
  return shape;
}

}  // namespace megatron::spec
