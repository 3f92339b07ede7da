#include "interop/huggingface_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace megatron::interop {
namespace {

using Json = nlohmann::json;
using spec::ModelSpec;

/// Takes keys out of a JSON object one by one, collects what is wrong with them, and refuses those that nobody took.
class ConfigKeys {
 public:
  /// `prefix` stands before key names in messages ("rope_parameters."). Both must outlive this object.
  ConfigKeys(const Json& object, std::string prefix, std::vector<std::string>& problems);

  /// True if the key is there and not null.
  bool has(const char* key) const;
  /// The value, or what stands for an absent key; without it an absent key is a problem.
  std::int64_t count(const char* key, std::optional<std::int64_t> otherwise = std::nullopt);
  double number(const char* key, std::optional<double> otherwise = std::nullopt);
  bool boolean(const char* key, std::optional<bool> otherwise = std::nullopt);
  std::string text(const char* key, const std::optional<std::string>& otherwise = std::nullopt);
  /// The sub-object, or null if absent.
  const Json* object(const char* key);
  /// A problem unless the key is absent or null, or holds `value`.
  void must_be(const char* key, const Json& value);
  /// Marks keys that change nothing.
  void ignore(std::string_view key) { taken_.emplace(key); }
  /// A problem for each key that was not taken, null values excepted.
  void refuse_others();
  void problem(const std::string& text) { problems_.push_back(text); }
  /// "rope_parameters.factor"
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

 private:
  const Json* take(const char* key, bool required);

  const Json& object_;
  std::string prefix_;
  std::vector<std::string>& problems_;
  std::set<std::string, std::less<>> taken_;
};

ConfigKeys::ConfigKeys(const Json& object, std::string prefix, std::vector<std::string>& problems)
    : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

bool ConfigKeys::has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

const Json* ConfigKeys::take(const char* key, bool required) {
  taken_.emplace(key);
  if (has(key)) return &object_.at(key);
  if (required) problem(str_cat(full(key), " is missing"));
  return nullptr;
}

std::int64_t ConfigKeys::count(const char* key, std::optional<std::int64_t> otherwise) {
  const Json* const value = take(key, !otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(1);
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > 0 && value->get<std::uint64_t>() < (1ULL << 40))
    return value->get<std::int64_t>();
  problem(str_cat(full(key), " = ", value->dump(), " is not a positive count"));
  return 1;
}

double ConfigKeys::number(const char* key, std::optional<double> otherwise) {
  const Json* const value = take(key, !otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(1.0);
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  problem(str_cat(full(key), " = ", value->dump(), " is not a number"));
  return 1.0;
}

bool ConfigKeys::boolean(const char* key, std::optional<bool> otherwise) {
  const Json* const value = take(key, !otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(false);
  if (value->is_boolean()) return value->get<bool>();
  problem(str_cat(full(key), " = ", value->dump(), " is not true or false"));
  return false;
}

std::string ConfigKeys::text(const char* key, const std::optional<std::string>& otherwise) {
  const Json* const value = take(key, !otherwise.has_value());
  if (value == nullptr) return otherwise.value_or("");
  if (value->is_string()) return value->get<std::string>();
  problem(str_cat(full(key), " = ", value->dump(), " is not a string"));
  return {};
}

const Json* ConfigKeys::object(const char* key) {
  const Json* const value = take(key, false);
  if (value == nullptr || value->is_object()) return value;
  problem(str_cat(full(key), " is not an object"));
  return nullptr;
}

void ConfigKeys::must_be(const char* key, const Json& expected) {
  const Json* const value = take(key, false);
  if (value != nullptr && *value != expected)
    problem(str_cat(full(key), " = ", value->dump(), " is not supported (only ", expected.dump(), ")"));
}

void ConfigKeys::refuse_others() {
  for (const auto& [key, value] : object_.items())
    if (!value.is_null() && taken_.find(key) == taken_.end())
      problem(str_cat(full(key), " is unknown: it may change what the model computes"));
}

// Keys that say nothing about what the model computes: provenance, token ids, output forms, sampling defaults, labels.
constexpr std::string_view kHarmless[] = {
    "_name_or_path",
    "_attn_implementation_autoset",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "n_ctx",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
    "use_return_dict",
    "chunk_size_feed_forward",
};

/// Activation of the name transformers gives it; a problem if it is not one of ours.
spec::Activation activation(ConfigKeys& keys, const char* key, const std::string& otherwise, bool gated) {
  const std::string name = keys.text(key, otherwise);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return spec::Activation::gelu_tanh;
  if (name == "gelu") return spec::Activation::gelu_erf;
  if (gated && (name == "silu" || name == "swish")) return spec::Activation::silu;
  if (!gated && name == "relu2") return spec::Activation::squared_relu;
  keys.problem(str_cat(key, " = \"", name, "\" is not supported (only gelu_new, gelu_pytorch_tanh, gelu and ",
                       gated ? "silu" : "relu2", ")"));
  return spec::Activation::gelu_tanh;
}

void take_common(ConfigKeys& keys, ModelSpec& model, const Json& architectures, const char* architecture) {
  for (const std::string_view key : kHarmless) keys.ignore(key);
  keys.must_be("architectures", architectures.is_null() ? Json() : Json::array({architecture}));
  keys.must_be("is_encoder_decoder", false);
  keys.must_be("tie_encoder_decoder", false);
  keys.must_be("pruned_heads", Json::object());
  keys.must_be("use_sliding_window", false);
  if (keys.has("sliding_window")) keys.must_be("sliding_window", Json());
  model.vocab_size = keys.count("vocab_size");
  model.init_method_std = keys.number("initializer_range", 0.02);
}

void take_gpt2(ConfigKeys& keys, ModelSpec& model) {
  model.hidden_size = keys.count("n_embd");
  model.num_layers = keys.count("n_layer");
  model.num_attention_heads = keys.count("n_head");
  model.num_query_groups = model.num_attention_heads;
  model.max_position_embeddings = keys.count("n_positions");
  model.ffn_hidden_size = keys.count("n_inner", 4 * model.hidden_size);
  if (model.hidden_size % model.num_attention_heads != 0)
    keys.problem(str_cat("n_embd = ", model.hidden_size, " is not a multiple of n_head = ", model.num_attention_heads));
  model.kv_channels = model.hidden_size / model.num_attention_heads;
  model.normalization = spec::Normalization::layer_norm;
  model.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5);
  model.position_embedding = spec::PositionEmbedding::learned_absolute;
  model.activation = activation(keys, "activation_function", "gelu_new", false);
  model.add_bias_linear = true;
  model.untie_embeddings_and_output_weights = !keys.boolean("tie_word_embeddings", true);
  model.attention_dropout = keys.number("attn_pdrop", 0.1);
  model.hidden_dropout = keys.number("resid_pdrop", 0.1);
  if (keys.number("embd_pdrop", 0.1) != model.hidden_dropout)
    keys.problem("embd_pdrop and resid_pdrop differ: one hidden dropout serves both");
  keys.must_be("scale_attn_weights", true);
  keys.must_be("scale_attn_by_inverse_layer_idx", false);
  keys.must_be("reorder_and_upcast_attn", false);
  keys.must_be("add_cross_attention", false);
}

/// The kinds of rotary embedding in either spelling; `dict` is rope_parameters or rope_scaling.
void take_rope_kind(ConfigKeys& dict, ModelSpec& model) {
  const std::string kind = dict.has("rope_type") ? dict.text("rope_type") : dict.text("type", "default");
  dict.ignore("type");
  dict.ignore("rope_type");
  dict.must_be("partial_rotary_factor", 1.0);
  if (kind == "linear") {
    model.rotary_seq_len_interpolation_factor = dict.number("factor");
  } else if (kind == "llama3") {
    spec::RopeScaling& scaling = model.rope_scaling.emplace();
    scaling.factor = dict.number("factor");
    scaling.low_freq_factor = dict.number("low_freq_factor");
    scaling.high_freq_factor = dict.number("high_freq_factor");
    scaling.original_length = dict.count("original_max_position_embeddings");
  } else if (kind != "default") {
    dict.problem(str_cat(dict.full("rope_type"), " = \"", kind, "\" is not supported (only default, linear, llama3)"));
    return;  // its other keys are no news
  }
  dict.refuse_others();
}

void take_rope(ConfigKeys& keys, ModelSpec& model, std::vector<std::string>& problems) {
  model.rotary_base = keys.number("rope_theta", 10000.0);
  keys.must_be("partial_rotary_factor", 1.0);
  const Json* const scaling = keys.object("rope_scaling");
  const Json* const parameters = keys.object("rope_parameters");
  if (parameters != nullptr) {
    ConfigKeys dict(*parameters, "rope_parameters.", problems);
    const double base = dict.number("rope_theta", model.rotary_base);
    if (keys.has("rope_theta") && base != model.rotary_base)
      keys.problem(str_cat("rope_theta = ", model.rotary_base, " contradicts rope_parameters.rope_theta = ", base));
    model.rotary_base = base;
    if (scaling != nullptr) keys.problem("rope_scaling and rope_parameters are both given");
    take_rope_kind(dict, model);
  } else if (scaling != nullptr) {
    ConfigKeys dict(*scaling, "rope_scaling.", problems);
    take_rope_kind(dict, model);
  }
}

void take_llama(ConfigKeys& keys, ModelSpec& model, std::vector<std::string>& problems) {
  model.hidden_size = keys.count("hidden_size");
  model.num_layers = keys.count("num_hidden_layers");
  model.num_attention_heads = keys.count("num_attention_heads");
  model.num_query_groups = keys.count("num_key_value_heads", model.num_attention_heads);
  if (model.num_attention_heads % model.num_query_groups != 0)
    keys.problem(str_cat("num_attention_heads = ", model.num_attention_heads,
                         " is not a multiple of num_key_value_heads = ", model.num_query_groups));
  if (!keys.has("head_dim") && model.hidden_size % model.num_attention_heads != 0)
    keys.problem(str_cat("hidden_size = ", model.hidden_size,
                         " is not a multiple of num_attention_heads = ", model.num_attention_heads));
  model.kv_channels = keys.count("head_dim", std::max<std::int64_t>(1, model.hidden_size / model.num_attention_heads));
  if (model.kv_channels % 2 != 0) keys.problem(str_cat("head_dim = ", model.kv_channels, " is odd, rope needs pairs"));
  model.ffn_hidden_size = keys.count("intermediate_size");
  model.max_position_embeddings = keys.count("max_position_embeddings", 2048);
  model.normalization = spec::Normalization::rms_norm;
  model.norm_epsilon = keys.number("rms_norm_eps", 1e-6);
  model.position_embedding = spec::PositionEmbedding::rope;
  model.activation = activation(keys, "hidden_act", "silu", true);
  model.gated_linear_unit = true;
  model.add_bias_linear = keys.boolean("attention_bias", false);
  if (keys.boolean("mlp_bias", false) != model.add_bias_linear)
    keys.problem("attention_bias and mlp_bias differ: linear layers have biases everywhere or nowhere");
  model.untie_embeddings_and_output_weights = !keys.boolean("tie_word_embeddings", false);
  model.attention_dropout = keys.number("attention_dropout", 0.0);
  model.hidden_dropout = 0.0;
  if (keys.has("layer_types"))
    keys.must_be("layer_types",
                 Json(std::vector<std::string>(static_cast<std::size_t>(model.num_layers), "full_attention")));
  take_rope(keys, model, problems);
}

}  // namespace

HuggingFaceConfig parse_huggingface_config(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) throw IoError(str_cat(path, ": is not a JSON object"));
  const std::string type = json.contains("model_type") ? json["model_type"].dump() : "missing";
  HuggingFaceConfig config;
  if (type == "\"gpt2\"")
    config.family = HuggingFaceFamily::gpt2;
  else if (type != "\"llama\"")
    throw ConfigError(str_cat(path, ": model_type ", type, " is not supported (only gpt2 and llama)"));
  std::vector<std::string> problems;
  ConfigKeys keys(json, "", problems);
  const Json architectures = json.contains("architectures") ? json["architectures"] : Json();
  if (config.family == HuggingFaceFamily::gpt2) {
    take_common(keys, config.model, architectures, "GPT2LMHeadModel");
    take_gpt2(keys, config.model);
  } else {
    take_common(keys, config.model, architectures, "LlamaForCausalLM");
    take_llama(keys, config.model, problems);
  }
  config.model.seq_length = config.model.max_position_embeddings;
  keys.refuse_others();
  if (!problems.empty()) {
    std::string line = path + ":";
    for (std::size_t i = 0; i < problems.size(); ++i) line += str_cat(i == 0 ? " " : "; ", problems[i]);
    throw ConfigError(line);
  }
  return config;
}

}  // namespace megatron::interop
