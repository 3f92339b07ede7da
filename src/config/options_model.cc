#include "config/option_table.h"

namespace megatron::config {
namespace {

using spec::Normalization;
using spec::PositionEmbedding;

std::vector<Option> size_rows() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(value(
          "--num-layers", [](Draft & d) -> auto& { return d.run.model.num_layers; }, "Decoder layers.")
          .in("layers")
          .at_least(1)
          .at_most(1e5));
  add(value(
          "--encoder-num-layers", [](Draft & d) -> auto& { return d.switches.encoder_num_layers; },
          "Same as --num-layers for decoder-only models.")
          .in("layers")
          .at_least(1)
          .at_most(1e5));
  add(value(
          "--hidden-size", [](Draft & d) -> auto& { return d.run.model.hidden_size; }, "Width of the residual stream.")
          .at_least(1)
          .at_most(1e6));
  add(value(
          "--num-attention-heads", [](Draft & d) -> auto& { return d.run.model.num_attention_heads; }, "Query heads.")
          .in("heads")
          .at_least(1)
          .at_most(1e6));
  add(value(
          "--ffn-hidden-size", [](Draft & d) -> auto& { return d.run.model.ffn_hidden_size; },
          "Width of the MLP; unset: 4 x hidden, gated: int(4 x hidden x 2/3 / 64) x 64.")
          .at_least(1)
          .at_most(1e7));
  add(value(
          "--kv-channels", [](Draft & d) -> auto& { return d.run.model.kv_channels; },
          "Size of a head; unset: hidden / heads.")
          .at_least(1)
          .at_most(1e6));
  add(flag(
      "--group-query-attention", [](Draft & d) -> auto& { return d.switches.group_query_attention; },
      "Query heads share keys and values in groups."));
  add(value(
          "--num-query-groups", [](Draft & d) -> auto& { return d.switches.num_query_groups; },
          "Key/value heads with --group-query-attention.")
          .in("heads")
          .at_least(1)
          .at_most(1e6));
  add(value(
          "--max-position-embeddings", [](Draft & d) -> auto& { return d.run.model.max_position_embeddings; },
          "Most positions the model can take; unset: the sequence length.")
          .in("tokens")
          .at_least(1)
          .at_most(1e9));
  add(value(
          "--seq-length", [](Draft & d) -> auto& { return d.run.model.seq_length; }, "Tokens of a sample.")
          .alias("--seq-len")
          .in("tokens")
          .at_least(1)
          .at_most(1e9));
  add(value(
          "--vocab-size", [](Draft & d) -> auto& { return d.switches.vocab_size; },
          "Entries of the vocabulary; unset: the tokenizer's.")
          .in("tokens")
          .at_least(1)
          .at_most(1e9));
  add(value(
          "--padded-vocab-size", [](Draft & d) -> auto& { return d.switches.padded_vocab_size; },
          "Rows of the embedding, padding included; unset: rounded up.")
          .in("rows")
          .at_least(1)
          .at_most(1e9));
  add(off_flag(
          "--no-pad-vocab-size", "pad_vocab_size", [](Draft & d) -> auto& { return d.switches.pad_vocab_size; },
          "Do not round the vocabulary up.")
          .alias("--disable-pad-vocab-size"));
  add(value(
          "--make-vocab-size-divisible-by", [](Draft & d) -> auto& { return d.run.model.make_vocab_size_divisible_by; },
          "The padded vocabulary is a multiple of this times the tensor parallel size.")
          .at_least(1)
          .at_most(1e6));
  add(flag(
      "--untie-embeddings-and-output-weights",
      [](Draft & d) -> auto& { return d.run.model.untie_embeddings_and_output_weights; },
      "The output layer has weights of its own."));
  return rows;
}

std::vector<Option> layer_rows() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(choice(
      "--normalization", [](Draft & d) -> auto& { return d.run.model.normalization; },
      {{"LayerNorm", Normalization::layer_norm}, {"RMSNorm", Normalization::rms_norm}}, "Kind of norm."));
  add(value(
          "--norm-epsilon", [](Draft & d) -> auto& { return d.run.model.norm_epsilon; },
          "Added to the variance in norms.")
          .key("layernorm_epsilon")
          .above(0));
  add(flag(
      "--swiglu", [](Draft & d) -> auto& { return d.switches.swiglu; }, "MLP silu(gate) x up."));
  add(flag(
          "--geglu", [](Draft & d) -> auto& { return d.switches.geglu; },
          "MLP gelu(gate) x up; tanh GELU, exact with --no-bias-gelu-fusion.")
          .our_own());
  add(flag(
          "--gated-linear-unit", [](Draft & d) -> auto& { return d.switches.gated_linear_unit; },
          "MLP activation(gate) x up with the activation of --activation-func.")
          .our_own());
  add(text_choice(
          "--activation-func", [](Draft & d) -> auto& { return d.switches.activation_func; },
          {"gelu", "gelu_tanh", "gelu_erf", "squared_relu", "silu"},
          "Activation of the MLP by name; gelu is the tanh form, exact with --no-bias-gelu-fusion.")
          .our_own());
  add(flag(
      "--squared-relu", [](Draft & d) -> auto& { return d.switches.squared_relu; }, "MLP activation relu(x)^2."));
  add(flag(
      "--openai-gelu", [](Draft & d) -> auto& { return d.switches.openai_gelu; }, "MLP activation tanh GELU."));
  add(off_flag(
      "--no-bias-gelu-fusion", "bias_gelu_fusion", [](Draft & d) -> auto& { return d.switches.bias_gelu_fusion; },
      "GELU in its exact form; the default is the tanh form."));
  add(off_flag(
      "--disable-bias-linear", "add_bias_linear", [](Draft & d) -> auto& { return d.run.model.add_bias_linear; },
      "No biases in linear layers."));
  add(flag(
      "--add-qkv-bias", [](Draft & d) -> auto& { return d.run.model.add_qkv_bias; },
      "Biases on query, key and value even without other biases."));
  add(flag(
      "--qk-layernorm", [](Draft & d) -> auto& { return d.run.model.qk_layernorm; },
      "Norm of every query and key head."));
  add(flag(
      "--apply-query-key-layer-scaling", [](Draft & d) -> auto& { return d.run.model.apply_query_key_layer_scaling; },
      "Scores divided by the layer number and multiplied again in the softmax; no effect in float32."));
  add(value(
          "--hidden-dropout", [](Draft & d) -> auto& { return d.run.model.hidden_dropout; },
          "Dropout on the embedding and on what each sublayer adds.")
          .at_least(0)
          .below(1));
  add(value(
          "--attention-dropout", [](Draft & d) -> auto& { return d.run.model.attention_dropout; },
          "Dropout on attention probabilities.")
          .at_least(0)
          .below(1));
  add(value(
          "--init-method-std", [](Draft & d) -> auto& { return d.run.model.init_method_std; },
          "Standard deviation of initial weights; output layers divide it by sqrt(2 x layers).")
          .at_least(0));
  add(value(
          "--embedding-init-method-std", [](Draft & d) -> auto& { return d.run.model.embedding_init_method_std; },
          "The same for embedding and head; unset: --init-method-std.")
          .at_least(0));
  add(flag(
      "--init-method-xavier-uniform", [](Draft & d) -> auto& { return d.run.model.init_method_xavier_uniform; },
      "Initial weights uniform by Xavier's rule."));
  return rows;
}

std::vector<Option> position_rows() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(choice(
          "--position-embedding-type", [](Draft & d) -> auto& { return d.run.model.position_embedding; },
          {{"learned_absolute", PositionEmbedding::learned_absolute},
           {"rope", PositionEmbedding::rope},
           {"none", PositionEmbedding::none}},
          "How positions enter the model.")
          .unbuilt_values({"yarn", "mrope", "relative"}));
  add(flag(
      "--use-rotary-position-embeddings", [](Draft & d) -> auto& { return d.switches.use_rotary_position_embeddings; },
      "Older spelling of --position-embedding-type rope."));
  add(off_flag(
      "--no-position-embedding", "add_position_embedding",
      [](Draft & d) -> auto& { return d.switches.add_position_embedding; },
      "No learned positions; only together with rope."));
  add(value(
          "--rotary-base", [](Draft & d) -> auto& { return d.run.model.rotary_base; }, "Base of the rope angles.")
          .above(0));
  add(value(
          "--rotary-percent", [](Draft & d) -> auto& { return d.run.model.rotary_percent; },
          "Share of each head that rotates.")
          .above(0)
          .at_most(1));
  add(flag(
      "--rotary-interleaved", [](Draft & d) -> auto& { return d.run.model.rotary_interleaved; },
      "Rotate neighbouring elements instead of halves."));
  add(value(
          "--rotary-seq-len-interpolation-factor",
          [](Draft & d) -> auto& { return d.run.model.rotary_seq_len_interpolation_factor; },
          "Positions are divided by this.")
          .above(0));
  add(flag(
      "--use-rope-scaling", [](Draft & d) -> auto& { return d.switches.use_rope_scaling; },
      "Llama 3's scaling of low frequencies."));
  add(value(
          "--rope-scaling-factor", [](Draft & d) -> auto& { return d.switches.rope_scaling_factor; },
          "Its factor, with --use-rope-scaling.")
          .above(0));
  return rows;
}

}  // namespace

std::vector<Option> model_options() {
  std::vector<Option> rows = size_rows();
  for (auto part : {layer_rows, position_rows})
    for (Option& row : part()) rows.push_back(std::move(row));
  for (Option& row : rows) row.topic = "Model";
  return rows;
}

}  // namespace megatron::config
