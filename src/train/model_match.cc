#include "train/model_match.h"

#include "base/check.h"

namespace megatron::train {
namespace {

using spec::ModelSpec;

const char* text(spec::Normalization value) {
  return value == spec::Normalization::layer_norm ? "LayerNorm" : "RMSNorm";
}

const char* text(spec::PositionEmbedding value) {
  switch (value) {
    case spec::PositionEmbedding::learned_absolute:
      return "learned_absolute";
    case spec::PositionEmbedding::rope:
      return "rope";
    case spec::PositionEmbedding::none:
      return "none";
  }
  return "?";
}

const char* text(spec::Activation value) {
  switch (value) {
    case spec::Activation::gelu_tanh:
      return "gelu (tanh)";
    case spec::Activation::gelu_erf:
      return "gelu (erf)";
    case spec::Activation::squared_relu:
      return "squared relu";
    case spec::Activation::silu:
      return "silu";
  }
  return "?";
}

template <typename T>
const T& text(const T& value) {
  return value;
}

std::string scaling_text(const ModelSpec& model) {
  return model.rope_scaling.has_value() ? str_cat("factor ", model.rope_scaling->factor) : "off";
}

class Differences {
 public:
  template <typename T>
  void compare(const char* option, const T& stored, const T& run) {
    if (!(stored == run))
      lines_ +=
          str_cat(lines_.empty() ? "" : "\n", option, ": the checkpoint has ", text(stored), ", this run ", text(run));
  }
  const std::string& lines() const { return lines_; }

 private:
  std::string lines_;
};

}  // namespace

void check_same_model(const ModelSpec& a, const ModelSpec& b, const std::string& where) {
  Differences d;
  d.compare("--num-layers", a.num_layers, b.num_layers);
  d.compare("--hidden-size", a.hidden_size, b.hidden_size);
  d.compare("--num-attention-heads", a.num_attention_heads, b.num_attention_heads);
  d.compare("--ffn-hidden-size", a.ffn_hidden_size, b.ffn_hidden_size);
  d.compare("--kv-channels", a.kv_channels, b.kv_channels);
  d.compare("--num-query-groups", a.num_query_groups, b.num_query_groups);
  d.compare("--vocab-size", a.vocab_size, b.vocab_size);
  d.compare("--normalization", a.normalization, b.normalization);
  d.compare("--norm-epsilon", a.norm_epsilon, b.norm_epsilon);
  d.compare("--position-embedding-type", a.position_embedding, b.position_embedding);
  if (a.position_embedding == spec::PositionEmbedding::learned_absolute)
    d.compare("--max-position-embeddings", a.max_position_embeddings, b.max_position_embeddings);
  if (a.position_embedding == spec::PositionEmbedding::rope) {
    d.compare("--rotary-base", a.rotary_base, b.rotary_base);
    d.compare("--rotary-percent", a.rotary_percent, b.rotary_percent);
    d.compare("--rotary-interleaved", a.rotary_interleaved, b.rotary_interleaved);
    d.compare("--rotary-seq-len-interpolation-factor", a.rotary_seq_len_interpolation_factor,
              b.rotary_seq_len_interpolation_factor);
    d.compare("--use-rope-scaling", scaling_text(a), scaling_text(b));
  }
  d.compare("activation", a.activation, b.activation);
  d.compare("--swiglu", a.gated_linear_unit, b.gated_linear_unit);
  d.compare("--disable-bias-linear", !a.add_bias_linear, !b.add_bias_linear);
  d.compare("--add-qkv-bias", a.has_qkv_bias(), b.has_qkv_bias());
  d.compare("--qk-layernorm", a.qk_layernorm, b.qk_layernorm);
  d.compare("--untie-embeddings-and-output-weights", a.untie_embeddings_and_output_weights,
            b.untie_embeddings_and_output_weights);
  if (!d.lines().empty()) throw ConfigError(str_cat(where, " holds another model:\n", d.lines()));
}

}  // namespace megatron::train
