#include "train/run_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "base/check.h"
#include "base/units.h"

namespace megatron::train {
namespace {

using Json = nlohmann::ordered_json;

/// Calls f(key, field) for each field, f.added for those that older checkpoints do not have: these keep their default.
/// One list for both directions.
template <typename Run, typename F>
void each_field(Run& run, F&& f) {
  auto& m = run.model;
  f("num_layers", m.num_layers);
  f("hidden_size", m.hidden_size);
  f("num_attention_heads", m.num_attention_heads);
  f("ffn_hidden_size", m.ffn_hidden_size);
  f("kv_channels", m.kv_channels);
  f("num_query_groups", m.num_query_groups);
  f("seq_length", m.seq_length);
  f("max_position_embeddings", m.max_position_embeddings);
  f("vocab_size", m.vocab_size);
  f("padded_vocab_size", m.padded_vocab_size);
  f("make_vocab_size_divisible_by", m.make_vocab_size_divisible_by);
  f("normalization", m.normalization);
  f("norm_epsilon", m.norm_epsilon);
  f("position_embedding_type", m.position_embedding);
  f("rotary_base", m.rotary_base);
  f("rotary_percent", m.rotary_percent);
  f("rotary_interleaved", m.rotary_interleaved);
  f("rotary_seq_len_interpolation_factor", m.rotary_seq_len_interpolation_factor);
  f("rope_scaling", m.rope_scaling);
  f("activation", m.activation);
  f("gated_linear_unit", m.gated_linear_unit);
  f("add_bias_linear", m.add_bias_linear);
  f("add_qkv_bias", m.add_qkv_bias);
  f("qk_layernorm", m.qk_layernorm);
  f("untie_embeddings_and_output_weights", m.untie_embeddings_and_output_weights);
  f("apply_query_key_layer_scaling", m.apply_query_key_layer_scaling);
  f("hidden_dropout", m.hidden_dropout);
  f("attention_dropout", m.attention_dropout);
  f("init_method_std", m.init_method_std);
  f("embedding_init_method_std", m.embedding_init_method_std);
  f("init_method_xavier_uniform", m.init_method_xavier_uniform);
  auto& o = run.optimizer;
  f("optimizer", o.kind);
  f("adam_beta1", o.adam_beta1);
  f("adam_beta2", o.adam_beta2);
  f("adam_eps", o.adam_eps);
  f("sgd_momentum", o.sgd_momentum);
  f("clip_grad", o.clip_grad);
  f.added("decoupled_weight_decay", o.decoupled_weight_decay);
  f.added("sgd_nesterov", o.sgd_nesterov);
  f.added("lion_beta1", o.lion_beta1);
  f.added("lion_beta2", o.lion_beta2);
  f.added("muon_momentum", o.muon.momentum);
  f.added("muon_nesterov", o.muon.nesterov);
  f.added("muon_split_qkv", o.muon.split_qkv);
  f.added("muon_scale_mode", o.muon.scale_mode);
  f.added("muon_extra_scale_factor", o.muon.extra_scale_factor);
  f.added("muon_coefficient_type", o.muon.coefficients);
  f.added("muon_num_ns_steps", o.muon.num_ns_steps);
  f.added("muon_scalar_optimizer", o.muon.scalar_optimizer);
  f("global_batch_size", run.batch.global_batch_size);
  f("train_iters", run.batch.train_iters);
  f("train_samples", run.batch.train_samples);
  f("tokenizer_type", run.data.tokenizer_type);
  f("null_tokenizer_eod_id", run.data.null_tokenizer_eod_id);
  f("null_tokenizer_pad_id", run.data.null_tokenizer_pad_id);
  f("split", run.data.split);
  f.added("data_path", run.data.data_path);
  f.added("train_data_path", run.data.train_data_path);
  f.added("train_data", run.data.train_data);
  f.added("data_args_path", run.data.data_args_path);
  f.added("per_split_data_args_path", run.data.per_split_data_args_path);
  f.added("mock_data", run.data.mock_data);
  f.added("dataloader_type", run.data.dataloader_type);
  f("seed", run.numerics.seed);
}

/// Names of enumerators, in their order.
template <typename E>
std::vector<const char*> names_of() {
  if constexpr (std::is_same_v<E, spec::Normalization>) return {"LayerNorm", "RMSNorm"};
  if constexpr (std::is_same_v<E, spec::PositionEmbedding>) return {"learned_absolute", "rope", "none"};
  if constexpr (std::is_same_v<E, spec::Activation>) return {"gelu_tanh", "gelu_erf", "squared_relu", "silu"};
  if constexpr (std::is_same_v<E, spec::OptimizerKind>) return {"adam", "sgd", "lion", "muon"};
  if constexpr (std::is_same_v<E, spec::DataloaderType>) return {"single", "cyclic"};
  if constexpr (std::is_same_v<E, spec::MuonScaleMode>) return {"spectral", "unit_rms_norm", "shape_scaling"};
  if constexpr (std::is_same_v<E, spec::MuonCoefficients>) return {"simple", "quintic", "polar_express", "aol"};
}

class Writer {
 public:
  template <typename T>
  void operator()(const char* key, const T& field) {
    json_[key] = to_json(field);
  }
  template <typename T>
  void added(const char* key, const T& field) {
    (*this)(key, field);
  }
  std::string text() const { return json_.dump(); }

 private:
  template <typename T>
  static Json to_json(const T& field) {
    if constexpr (std::is_enum_v<T>) {
      return names_of<T>()[static_cast<std::size_t>(field)];
    } else {
      return field;
    }
  }
  template <typename T>
  static Json to_json(const std::optional<T>& field) {
    return field.has_value() ? to_json(*field) : Json(nullptr);
  }
  static Json to_json(const spec::RopeScaling& scaling) {
    return {{"factor", scaling.factor},
            {"low_freq_factor", scaling.low_freq_factor},
            {"high_freq_factor", scaling.high_freq_factor},
            {"original_length", scaling.original_length}};
  }
  Json json_ = Json::object();
};

class Reader {
 public:
  Reader(const Json& json, const std::string& path) : json_(json), path_(path) {}
  template <typename T>
  void operator()(const char* key, T& field) {
    const auto found = json_.find(key);
    if (found == json_.end()) throw IoError(str_cat(path_, ": the description of the run has no \"", key, "\""));
    try {
      read(*found, field);
    } catch (const Json::exception&) {
      throw IoError(str_cat(path_, ": \"", key, "\" is ", found->dump(), ", which is not a value of its kind"));
    }
  }
  template <typename T>
  void added(const char* key, T& field) {
    if (json_.contains(key)) (*this)(key, field);
  }

 private:
  template <typename T>
  void read(const Json& json, T& field) {
    if constexpr (std::is_enum_v<T>) {
      const auto names = names_of<T>();
      const auto text = json.get<std::string>();
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (text != names[i]) continue;
        field = static_cast<T>(i);
        return;
      }
      throw IoError(str_cat(path_, ": this version does not know \"", text, "\""));
    } else {
      field = json.get<T>();
    }
  }
  template <typename T>
  void read(const Json& json, std::optional<T>& field) {
    field.reset();
    if (!json.is_null()) read(json, field.emplace());
  }
  void read(const Json& json, spec::RopeScaling& scaling) {
    json.at("factor").get_to(scaling.factor);
    json.at("low_freq_factor").get_to(scaling.low_freq_factor);
    json.at("high_freq_factor").get_to(scaling.high_freq_factor);
    json.at("original_length").get_to(scaling.original_length);
  }
  const Json& json_;
  const std::string& path_;
};

}  // namespace

std::string run_to_json(const spec::RunSpec& run) {
  spec::RunSpec stored = run;
  stored.model.padded_vocab_size = round_up(run.model.vocab_size, run.model.make_vocab_size_divisible_by);
  Writer writer;
  each_field(std::as_const(stored), writer);
  return writer.text();
}

spec::RunSpec run_from_json(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) throw IoError(path + ": the description of the run is not a JSON object");
  spec::RunSpec run;
  each_field(run, Reader(json, path));
  return run;
}

}  // namespace megatron::train
