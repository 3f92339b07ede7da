#include "interop/huggingface_names.h"

#include <utility>

#include "base/check.h"

namespace megatron::interop {
namespace {

using spec::ModelSpec;

/// The mapping of a tensor that is the same on both sides, save its name and perhaps its orientation.
TensorMapping same(std::string ours, std::string theirs, int num_dims, std::int64_t rows, std::int64_t cols,
                   bool turned = false) {
  TensorMapping mapping{std::move(ours), num_dims, rows, cols, {}};
  ForeignPart part{std::move(theirs), {rows}, turned && num_dims == 2, {{0, 0, rows}}};
  if (num_dims == 2)
    part.shape = turned ? std::vector<std::int64_t>{cols, rows} : std::vector<std::int64_t>{rows, cols};
  mapping.parts.push_back(std::move(part));
  return mapping;
}

ForeignPart plain_part(const std::string& name, int num_dims, std::int64_t rows, std::int64_t cols) {
  ForeignPart part{name, {rows}, false, {}};
  if (num_dims == 2) part.shape.push_back(cols);
  return part;
}

/// linear_qkv (per group [query heads | key | value]) from three tensors.
TensorMapping separate_qkv(const ModelSpec& model, const std::string& ours, const std::string& prefix,
                           const std::string& kind, int num_dims) {
  const std::int64_t cols = num_dims == 2 ? model.hidden_size : 1;
  const std::int64_t query_rows = model.heads_per_group() * model.kv_channels;
  const std::int64_t kv_rows = model.num_query_groups * model.kv_channels;
  TensorMapping mapping{ours, num_dims, model.qkv_rows(), cols, {}};
  ForeignPart q = plain_part(prefix + "q_proj." + kind, num_dims, model.attention_width(), cols);
  ForeignPart k = plain_part(prefix + "k_proj." + kind, num_dims, kv_rows, cols);
  ForeignPart v = plain_part(prefix + "v_proj." + kind, num_dims, kv_rows, cols);
  std::int64_t row = 0;
  for (std::int64_t group = 0; group < model.num_query_groups; ++group) {
    q.runs.push_back({row, group * query_rows, query_rows});
    row += query_rows;
    k.runs.push_back({row, group * model.kv_channels, model.kv_channels});
    row += model.kv_channels;
    v.runs.push_back({row, group * model.kv_channels, model.kv_channels});
    row += model.kv_channels;
  }
  mapping.parts = {q, k, v};
  return mapping;
}

/// linear_qkv from GPT-2's c_attn: columns [all q | all k | all v], every head a group of its own.
TensorMapping joined_qkv(const ModelSpec& model, const std::string& ours, const std::string& theirs, int num_dims) {
  TensorMapping mapping = same(ours, theirs, num_dims, model.qkv_rows(), num_dims == 2 ? model.hidden_size : 1, true);
  std::vector<RowRun>& runs = mapping.parts[0].runs;
  runs.clear();
  for (std::int64_t head = 0; head < model.num_attention_heads; ++head)
    for (std::int64_t part = 0; part < 3; ++part)
      runs.push_back({(head * 3 + part) * model.kv_channels, part * model.attention_width() + head * model.kv_channels,
                      model.kv_channels});
  return mapping;
}

/// fc1 of a gated MLP: [all gate; all up].
TensorMapping gate_up(const ModelSpec& model, const std::string& ours, const std::string& prefix,
                      const std::string& kind, int num_dims) {
  const std::int64_t ffn = model.ffn_hidden_size, cols = num_dims == 2 ? model.hidden_size : 1;
  TensorMapping mapping{ours, num_dims, 2 * ffn, cols, {}};
  ForeignPart gate = plain_part(prefix + "gate_proj." + kind, num_dims, ffn, cols);
  ForeignPart up = plain_part(prefix + "up_proj." + kind, num_dims, ffn, cols);
  gate.runs.push_back({0, 0, ffn});
  up.runs.push_back({ffn, 0, ffn});
  mapping.parts = {gate, up};
  return mapping;
}

std::vector<TensorMapping> gpt2_mappings(const ModelSpec& model) {
  const std::int64_t hidden = model.hidden_size, ffn = model.ffn_hidden_size;
  std::vector<TensorMapping> all;
  const auto add = [&](const std::string& ours, const std::string& theirs, int dims, std::int64_t rows,
                       std::int64_t cols, bool turned) { all.push_back(same(ours, theirs, dims, rows, cols, turned)); };
  const auto linear = [&](const std::string& ours, const std::string& theirs, std::int64_t rows, std::int64_t cols) {
    add(ours + ".weight", theirs + ".weight", 2, rows, cols, true);
    add(ours + ".bias", theirs + ".bias", 1, rows, 1, false);
  };
  const auto norm = [&](const std::string& ours, const std::string& theirs) {
    for (const char* kind : {".weight", ".bias"}) add(ours + kind, theirs + kind, 1, hidden, 1, false);
  };
  add("embedding.word_embeddings.weight", "transformer.wte.weight", 2, model.vocab_size, hidden, false);
  add("embedding.position_embeddings.weight", "transformer.wpe.weight", 2, model.max_position_embeddings, hidden,
      false);
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string ours = str_cat("decoder.layers.", layer, "."), theirs = str_cat("transformer.h.", layer, ".");
    norm(ours + "input_layernorm", theirs + "ln_1");
    all.push_back(joined_qkv(model, ours + "self_attention.linear_qkv.weight", theirs + "attn.c_attn.weight", 2));
    all.push_back(joined_qkv(model, ours + "self_attention.linear_qkv.bias", theirs + "attn.c_attn.bias", 1));
    linear(ours + "self_attention.linear_proj", theirs + "attn.c_proj", hidden, model.attention_width());
    norm(ours + "pre_mlp_layernorm", theirs + "ln_2");
    linear(ours + "mlp.linear_fc1", theirs + "mlp.c_fc", ffn, hidden);
    linear(ours + "mlp.linear_fc2", theirs + "mlp.c_proj", hidden, ffn);
  }
  norm("decoder.final_layernorm", "transformer.ln_f");
  return all;
}

std::vector<TensorMapping> llama_mappings(const ModelSpec& model) {
  const std::int64_t hidden = model.hidden_size, ffn = model.ffn_hidden_size;
  std::vector<TensorMapping> all;
  const auto linear = [&](const std::string& ours, const std::string& theirs, std::int64_t rows, std::int64_t cols) {
    all.push_back(same(ours + ".weight", theirs + ".weight", 2, rows, cols));
    if (model.add_bias_linear) all.push_back(same(ours + ".bias", theirs + ".bias", 1, rows, 1));
  };
  all.push_back(same("embedding.word_embeddings.weight", "model.embed_tokens.weight", 2, model.vocab_size, hidden));
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string ours = str_cat("decoder.layers.", layer, "."), theirs = str_cat("model.layers.", layer, ".");
    all.push_back(same(ours + "input_layernorm.weight", theirs + "input_layernorm.weight", 1, hidden, 1));
    for (const char* kind : {"weight", "bias"})
      if (kind[0] == 'w' || model.add_bias_linear)
        all.push_back(separate_qkv(model, ours + "self_attention.linear_qkv." + kind, theirs + "self_attn.", kind,
                                   kind[0] == 'w' ? 2 : 1));
    linear(ours + "self_attention.linear_proj", theirs + "self_attn.o_proj", hidden, model.attention_width());
    all.push_back(same(ours + "pre_mlp_layernorm.weight", theirs + "post_attention_layernorm.weight", 1, hidden, 1));
    for (const char* kind : {"weight", "bias"})
      if (kind[0] == 'w' || model.add_bias_linear)
        all.push_back(gate_up(model, ours + "mlp.linear_fc1." + kind, theirs + "mlp.", kind, kind[0] == 'w' ? 2 : 1));
    linear(ours + "mlp.linear_fc2", theirs + "mlp.down_proj", hidden, ffn);
  }
  all.push_back(same("decoder.final_layernorm.weight", "model.norm.weight", 1, hidden, 1));
  return all;
}

}  // namespace

std::vector<TensorMapping> huggingface_mappings(const HuggingFaceConfig& config) {
  std::vector<TensorMapping> all =
      config.family == HuggingFaceFamily::gpt2 ? gpt2_mappings(config.model) : llama_mappings(config.model);
  if (config.model.untie_embeddings_and_output_weights)
    all.push_back(same("output_layer.weight", "lm_head.weight", 2, config.model.vocab_size, config.model.hidden_size));
  return all;
}

}  // namespace megatron::interop
