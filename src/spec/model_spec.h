// What a decoder-only Transformer is: sizes, kinds of layer, initialisation. One field per Megatron option.
#pragma once

#include <cstdint>
#include <optional>

namespace megatron::spec {

enum class Normalization : std::uint8_t { layer_norm, rms_norm };
enum class PositionEmbedding : std::uint8_t { learned_absolute, rope, none };
enum class Activation : std::uint8_t {
  gelu_tanh,
  gelu_erf,
  squared_relu,
  silu,
};

struct RopeScaling {
  double factor = 8.0;  // --rope-scaling-factor
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_length = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct ModelSpec {
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t ffn_hidden_size = 0;   // 0 until derived: 4h, gated: int((4h·2/3)/64)·64
  std::int64_t kv_channels = 0;       // size of a head; 0 until derived: hidden / heads
  std::int64_t num_query_groups = 0;  // key/value heads; 0 until derived: heads
  std::int64_t seq_length = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t vocab_size = 0;         // without padding
  std::int64_t padded_vocab_size = 0;  // derived; columns ≥ vocab_size never enter the softmax
  std::int64_t make_vocab_size_divisible_by = 128;

  Normalization normalization = Normalization::layer_norm;
  double norm_epsilon = 1e-5;
  PositionEmbedding position_embedding = PositionEmbedding::learned_absolute;
  double rotary_base = 10000.0;
  double rotary_percent = 1.0;
  bool rotary_interleaved = false;
  double rotary_seq_len_interpolation_factor = 1.0;
  std::optional<RopeScaling> rope_scaling;

  Activation activation = Activation::gelu_tanh;
  bool gated_linear_unit = false;  // fc1 = [all gate rows; all up rows], output act(gate)·up
  bool add_bias_linear = true;
  bool add_qkv_bias = false;  // bias on linear_qkv only (implied by add_bias_linear)
  bool qk_layernorm = false;
  bool untie_embeddings_and_output_weights = false;
  bool apply_query_key_layer_scaling = false;  // exact in fp32: the scores are divided and multiplied again

  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double init_method_std = 0.02;
  std::optional<double> embedding_init_method_std;
  bool init_method_xavier_uniform = false;

  bool operator==(const ModelSpec&) const = default;

  std::int64_t heads_per_group() const { return num_attention_heads / num_query_groups; }
  /// Rows of linear_qkv: per group [its query heads | key | value].
  std::int64_t qkv_rows() const { return (num_attention_heads + 2 * num_query_groups) * kv_channels; }
  std::int64_t attention_width() const { return num_attention_heads * kv_channels; }
  std::int64_t fc1_rows() const { return gated_linear_unit ? 2 * ffn_hidden_size : ffn_hidden_size; }
  bool has_qkv_bias() const { return add_bias_linear || add_qkv_bias; }
  bool tied() const { return !untie_embeddings_and_output_weights; }
};

}  // namespace megatron::spec
