#include "interop/huggingface.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "checkpoint/file_io.h"
#include "support/reference_data.h"
#include "support/temporary_folder.h"

namespace megatron::interop {
namespace {

namespace fs = std::filesystem;
using checkpoint::SafetensorsFile;
using Json = nlohmann::json;

const char* const kSupported[] = {"gpt2", "llama", "llama3_rope", "llama_bias_tied"};

fs::path golden() { return testing::reference_dir() / "golden/hf"; }

TEST(HuggingFace, GoldenModelsComeBackBitForBit) {
  MEGATRON_REQUIRE_REFERENCE(golden());
  for (const char* name : kSupported)
    for (const char* config : {"config.json", "config_old_style.json"}) {
      const std::string folder = (golden() / name).string();
      const HuggingFaceModel model(folder, config);
      const SafetensorsFile file(folder + "/model.safetensors");
      std::set<std::string> seen;
      for (const std::string& ours : model.names()) {
        const auto foreign = model.to_foreign(ours, model.logical(ours));
        ASSERT_EQ(foreign.size(), model.foreign_names(ours).size());
        for (const ForeignTensor& tensor : foreign) {
          EXPECT_TRUE(seen.insert(tensor.name).second) << tensor.name;
          EXPECT_EQ(tensor.shape, file.info(tensor.name).shape);
          const auto bytes = file.bytes(tensor.name);
          ASSERT_EQ(bytes.size(), tensor.values.size() * sizeof(float));
          EXPECT_EQ(std::memcmp(bytes.data(), tensor.values.data(), bytes.size()), 0) << name << " " << tensor.name;
        }
      }
      EXPECT_EQ(seen.size(), file.tensors().size()) << name;
    }
}

TEST(HuggingFace, BothSpellingsMeanTheSame) {
  MEGATRON_REQUIRE_REFERENCE(golden());
  for (const char* name : kSupported) {
    const std::string folder = (golden() / name).string();
    EXPECT_TRUE(HuggingFaceModel(folder).model() == HuggingFaceModel(folder, "config_old_style.json").model()) << name;
  }
}

TEST(HuggingFace, OtherArchitecturesAreRefusedByName) {
  MEGATRON_REQUIRE_REFERENCE(golden());
  int refused = 0;
  for (const auto& entry : fs::directory_iterator(golden())) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || std::count(std::begin(kSupported), std::end(kSupported), name) != 0) continue;
    for (const char* config : {"config.json", "config_old_style.json"}) try {
        const HuggingFaceModel model(entry.path().string(), config);
        ADD_FAILURE() << name << " was accepted";
      } catch (const ConfigError& error) {
        const std::string type =
            Json::parse(checkpoint::read_text_file((entry.path() / config).string()))["model_type"];
        EXPECT_NE(std::string(error.what()).find("model_type \"" + type + "\" is not supported"), std::string::npos)
            << error.what();
        ++refused;
      }
  }
  EXPECT_EQ(refused, 24);
}

/// A tiny model whose element values are their place in the file; 2 heads per group, 2 groups, head size 2.
class TinyModel : public ::testing::Test {
 protected:
  using Shapes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

  void write_config(const Json& json) { std::ofstream(folder_ / "config.json") << json.dump(); }

  /// Values count up through all tensors in the given order.
  void write_weights(const Shapes& shapes, const std::string& file = "model.safetensors") {
    std::vector<checkpoint::TensorToWrite> tensors;
    for (const auto& [name, shape] : shapes) tensors.push_back({name, DType::float32, shape});
    checkpoint::SafetensorsWriter writer(folder_ / file, tensors);
    float next = 0;
    for (const auto& tensor : tensors) {
      std::int64_t count = 1;
      for (const std::int64_t size : tensor.shape) count *= size;
      std::vector<float> values(static_cast<std::size_t>(count));
      first_[tensor.name] = next;
      for (float& value : values) value = next++;
      writer.append(std::as_bytes(std::span(values)));
    }
    writer.finish();
  }

  static Json llama_config() {
    return {{"model_type", "llama"},
            {"architectures", {"LlamaForCausalLM"}},
            {"hidden_size", 6},
            {"num_hidden_layers", 1},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2},
            {"head_dim", 2},
            {"intermediate_size", 5},
            {"max_position_embeddings", 16},
            {"vocab_size", 7},
            {"rms_norm_eps", 1e-6},
            {"tie_word_embeddings", true}};
  }
  static Shapes llama_shapes() {
    const std::string layer = "model.layers.0.";
    return {{"model.embed_tokens.weight", {7, 6}},
            {layer + "input_layernorm.weight", {6}},
            {layer + "self_attn.q_proj.weight", {8, 6}},
            {layer + "self_attn.k_proj.weight", {4, 6}},
            {layer + "self_attn.v_proj.weight", {4, 6}},
            {layer + "self_attn.o_proj.weight", {6, 8}},
            {layer + "post_attention_layernorm.weight", {6}},
            {layer + "mlp.gate_proj.weight", {5, 6}},
            {layer + "mlp.up_proj.weight", {5, 6}},
            {layer + "mlp.down_proj.weight", {6, 5}},
            {"model.norm.weight", {6}}};
  }
  static Json gpt2_config() {
    return {{"model_type", "gpt2"}, {"n_embd", 4},      {"n_head", 2},
            {"n_layer", 1},         {"n_positions", 3}, {"vocab_size", 5}};
  }
  static Shapes gpt2_shapes(const std::string& prefix) {
    const std::string layer = prefix + "h.0.";
    return {{prefix + "wte.weight", {5, 4}},
            {prefix + "wpe.weight", {3, 4}},
            {layer + "ln_1.weight", {4}},
            {layer + "ln_1.bias", {4}},
            {layer + "attn.c_attn.weight", {4, 12}},
            {layer + "attn.c_attn.bias", {12}},
            {layer + "attn.c_proj.weight", {4, 4}},
            {layer + "attn.c_proj.bias", {4}},
            {layer + "ln_2.weight", {4}},
            {layer + "ln_2.bias", {4}},
            {layer + "mlp.c_fc.weight", {4, 16}},
            {layer + "mlp.c_fc.bias", {16}},
            {layer + "mlp.c_proj.weight", {16, 4}},
            {layer + "mlp.c_proj.bias", {4}},
            {prefix + "ln_f.weight", {4}},
            {prefix + "ln_f.bias", {4}}};
  }

  template <typename E>
  std::string refusal() {
    try {
      const HuggingFaceModel model(folder_.path());
    } catch (const E& error) {
      return error.what();
    }
    return "accepted";
  }
  void expect_refused(const Json& config, const std::string& part) {
    write_config(config);
    const std::string text = refusal<ConfigError>();
    EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
    EXPECT_NE(text.find(folder_ / "config.json: "), std::string::npos) << text;
  }

  const testing::TemporaryFolder folder_;
  std::map<std::string, float> first_;  // value of the first element of each tensor
};

TEST_F(TinyModel, LlamaRowsStandWhereMegatronWantsThem) {
  write_config(llama_config());
  write_weights(llama_shapes());
  const HuggingFaceModel model(folder_.path());
  const auto qkv = model.logical("decoder.layers.0.self_attention.linear_qkv.weight");
  // Rows of group 1: query rows 4…7, key rows 2…3, value rows 2…3; a row has 6 elements.
  const float q = first_.at("model.layers.0.self_attn.q_proj.weight");
  const float k = first_.at("model.layers.0.self_attn.k_proj.weight");
  const float v = first_.at("model.layers.0.self_attn.v_proj.weight");
  const float expected[] = {q,      q + 6,  q + 12, q + 18, k,      k + 6,  v,      v + 6,
                            q + 24, q + 30, q + 36, q + 42, k + 12, k + 18, v + 12, v + 18};
  ASSERT_EQ(qkv.size(), 16U * 6U);
  for (std::size_t row = 0; row < 16; ++row)
    for (std::size_t c = 0; c < 6; ++c) EXPECT_EQ(qkv[row * 6 + c], expected[row] + static_cast<float>(c)) << row;
  const auto fc1 = model.logical("decoder.layers.0.mlp.linear_fc1.weight");
  EXPECT_EQ(fc1[0], first_.at("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_EQ(fc1[5 * 6], first_.at("model.layers.0.mlp.up_proj.weight"));
  EXPECT_EQ(model.logical("decoder.layers.0.pre_mlp_layernorm.weight")[2],
            first_.at("model.layers.0.post_attention_layernorm.weight") + 2);
  EXPECT_FALSE(model.has("output_layer.weight"));
  EXPECT_EQ(model.model().kv_channels, 2);
  EXPECT_EQ(model.model().num_query_groups, 2);
  EXPECT_EQ(model.model().rotary_base, 10000.0);
}

TEST_F(TinyModel, Gpt2MatricesAreTurned) {
  write_config(gpt2_config());
  for (const std::string prefix : {"transformer.", ""}) {
    auto shapes = gpt2_shapes(prefix);
    shapes.push_back({prefix + "h.0.attn.bias", {1, 1, 3, 3}});  // a mask that older files hold
    write_weights(shapes);
    const HuggingFaceModel model(folder_.path());
    const float first = first_.at(prefix + "h.0.attn.c_attn.weight");
    const auto qkv = model.logical("decoder.layers.0.self_attention.linear_qkv.weight");
    ASSERT_EQ(qkv.size(), 48U);
    // Row r of ours is a column of c_attn: head 0 [q 0, 1 | k 4, 5 | v 8, 9], head 1 [q 2, 3 | k 6, 7 | v 10, 11].
    const int columns[] = {0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11};
    for (std::size_t row = 0; row < 12; ++row)
      for (std::size_t c = 0; c < 4; ++c)
        EXPECT_EQ(qkv[row * 4 + c], first + static_cast<float>(c * 12) + static_cast<float>(columns[row])) << row;
    const auto bias = model.logical("decoder.layers.0.self_attention.linear_qkv.bias");
    for (std::size_t row = 0; row < 12; ++row)
      EXPECT_EQ(bias[row], first_.at(prefix + "h.0.attn.c_attn.bias") + static_cast<float>(columns[row]));
    EXPECT_EQ(model.logical("decoder.layers.0.mlp.linear_fc1.weight")[1],
              first_.at(prefix + "h.0.mlp.c_fc.weight") + 16);
    const auto back = model.to_foreign("decoder.layers.0.self_attention.linear_qkv.weight", qkv);
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].name, "transformer.h.0.attn.c_attn.weight");
    for (std::size_t i = 0; i < 48; ++i) EXPECT_EQ(back[0].values[i], first + static_cast<float>(i));
  }
}

TEST_F(TinyModel, ReadsShards) {
  write_config(llama_config());
  write_weights(llama_shapes());
  const HuggingFaceModel model(folder_.path());
  const auto allocator = tensor::Allocator::create(Device::cpu);
  const auto read = [&](const std::string& name, const spec::Sharding& sharding, DType dtype) {
    checkpoint::StateEntry entry{name, sharding, false, {}};
    entry.tensor = Tensor::empty(*allocator, {sharding.local_rows, sharding.local_cols}, dtype, MemoryKind::parameter);
    std::memset(entry.tensor.view().pointer, 1, static_cast<std::size_t>(entry.tensor.bytes()));
    model.read(entry);
    return entry.tensor;
  };
  const auto whole = model.logical("decoder.layers.0.self_attention.linear_qkv.weight");
  Tensor shard =
      read("decoder.layers.0.self_attention.linear_qkv.weight", spec::qkv_shard(2, 4, 2, 2, 6, 3, 4), DType::float32);
  // Rank 3 of 4: the second query head of group 1, and the group's key and value rows.
  for (std::int64_t r = 0; r < 6; ++r)
    for (std::int64_t c = 0; c < 6; ++c)
      EXPECT_EQ(shard.data<float>()[r * 6 + c], whole[static_cast<std::size_t>((10 + r) * 6 + c)]);
  const float table = first_.at("model.embed_tokens.weight");
  Tensor rows = read("embedding.word_embeddings.weight", spec::row_shard(2, 7, 16, 6, 0, 2), DType::float64);
  for (std::int64_t i = 0; i < 48; ++i)
    EXPECT_EQ(rows.data<double>()[i], i < 42 ? static_cast<double>(table) + static_cast<double>(i) : 0.0);
  Tensor columns = read("decoder.layers.0.mlp.linear_fc2.weight", spec::column_shard(6, 5, 0, 1), DType::float32);
  EXPECT_EQ(columns.data<float>()[29], first_.at("model.layers.0.mlp.down_proj.weight") + 29);
  EXPECT_THROW(read("decoder.layers.0.mlp.linear_fc2.weight", spec::column_shard(6, 10, 0, 1), DType::float32),
               IoError);
  EXPECT_THROW(read("decoder.layers.7.mlp.linear_fc2.weight", spec::column_shard(6, 5, 0, 1), DType::float32), IoError);
}

TEST_F(TinyModel, ReadsSeveralFilesThroughTheIndex) {
  write_config(llama_config());
  auto shapes = llama_shapes();
  const TinyModel::Shapes one(shapes.begin(), shapes.begin() + 4), two(shapes.begin() + 4, shapes.end());
  write_weights(one, "model-00001-of-00002.safetensors");
  write_weights(two, "model-00002-of-00002.safetensors");
  Json map = Json::object();
  for (const auto& [name, shape] : one) map[name] = "model-00001-of-00002.safetensors";
  for (const auto& [name, shape] : two) map[name] = "model-00002-of-00002.safetensors";
  const auto write_index = [&](const Json& json) {
    std::ofstream(folder_ / "model.safetensors.index.json") << json.dump();
  };
  write_index({{"metadata", {{"total_size", 1}}}, {"weight_map", map}});
  const HuggingFaceModel model(folder_.path());
  EXPECT_EQ(model.logical("decoder.layers.0.mlp.linear_fc2.weight")[3],
            first_.at("model.layers.0.mlp.down_proj.weight") + 3);
  Json wrong = map;
  wrong["model.norm.weight"] = "model-00001-of-00002.safetensors";
  write_index({{"weight_map", wrong}});
  EXPECT_NE(refusal<IoError>().find("has no tensor \"model.norm.weight\" though"), std::string::npos);
  wrong["model.norm.weight"] = "../x.safetensors";
  write_index({{"weight_map", wrong}});
  EXPECT_NE(refusal<IoError>().find("not a file name"), std::string::npos);
  wrong = map;
  wrong.erase("model.norm.weight");
  write_index({{"weight_map", wrong}});
  EXPECT_NE(refusal<IoError>().find("no file holds tensor \"model.norm.weight\""), std::string::npos);
  write_index(Json::array());
  EXPECT_NE(refusal<IoError>().find("has no weight_map"), std::string::npos);
  fs::remove(folder_ / "model.safetensors.index.json");
  EXPECT_NE(refusal<IoError>().find("holds neither model.safetensors nor"), std::string::npos);
}

TEST_F(TinyModel, RefusesWeightsThatDoNotFit) {
  write_config(llama_config());
  auto shapes = llama_shapes();
  shapes[2].second = {4, 6};
  write_weights(shapes);
  EXPECT_NE(refusal<IoError>().find("q_proj.weight\" has shape [4, 6], the configuration needs [8, 6]"),
            std::string::npos);
  shapes = llama_shapes();
  shapes.push_back({"model.layers.0.self_attn.q_norm.weight", {2}});
  write_weights(shapes);
  EXPECT_NE(refusal<IoError>().find("q_norm.weight\" has no place in this model"), std::string::npos);
  shapes = llama_shapes();
  shapes.push_back({"lm_head.weight", {7, 6}});  // other values than the table
  write_weights(shapes);
  EXPECT_NE(refusal<IoError>().find("lm_head.weight differs from model.embed_tokens.weight"), std::string::npos);
  shapes = llama_shapes();
  shapes.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {1}});
  write_weights(shapes);
  EXPECT_EQ(refusal<IoError>(), "accepted");
  std::ofstream(folder_ / "config.json") << "{\"model_type\": \"llama\"";
  EXPECT_NE(refusal<IoError>().find("is not a JSON object"), std::string::npos);
}

TEST_F(TinyModel, RefusesKeysThatWouldChangeTheMaths) {
  write_weights(llama_shapes());
  const auto llama = [&](const char* key, const Json& value) {
    Json config = llama_config();
    config[key] = value;
    return config;
  };
  expect_refused(llama("model_type", "phi"), "model_type \"phi\" is not supported");
  expect_refused(llama("architectures", {"LlamaForSequenceClassification"}),
                 "architectures = [\"LlamaForSequenceClassification\"]");
  expect_refused(llama("sliding_window", 4096), "sliding_window = 4096 is not supported");
  expect_refused(llama("layer_types", {"sliding_attention"}), "layer_types = ");
  expect_refused(llama("hidden_act", "relu"), "hidden_act = \"relu\" is not supported");
  expect_refused(llama("attention_bias", true), "attention_bias and mlp_bias differ");
  expect_refused(llama("rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}), "rope_scaling.rope_type = \"dynamic\"");
  expect_refused(llama("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}), "\"yarn\" is not supported");
  expect_refused(llama("rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}}),
                 "rope_scaling.low_freq_factor is missing");
  expect_refused(llama("rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}}),
                 "rope_scaling.beta_fast is unknown");
  expect_refused(llama("rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}),
                 "rope_parameters.partial_rotary_factor = 0.5");
  expect_refused(llama("rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}),
                 "rope_parameters.full_attention is unknown");
  Json both = llama("rope_parameters", {{"rope_theta", 1e4}});
  both["rope_theta"] = 5e5;
  expect_refused(both, "contradicts");
  expect_refused(llama("num_key_value_heads", 3), "is not a multiple of num_key_value_heads = 3");
  expect_refused(llama("vocab_size", -1), "vocab_size = -1 is not a positive count");
  expect_refused(llama("rms_norm_eps", "small"), "rms_norm_eps = \"small\" is not a number");
  expect_refused(llama("hidden_size", nullptr), "hidden_size is missing");
  expect_refused(llama("embedding_multiplier", 12.0), "embedding_multiplier is unknown");
  expect_refused(llama("quantization_config", {{"bits", 4}}), "quantization_config is unknown");
  Json two = llama("logit_scale", 2.0);
  two["is_encoder_decoder"] = true;
  expect_refused(two, "is_encoder_decoder = true");
  expect_refused(two, "; logit_scale is unknown");
  const auto gpt2 = [&](const char* key, const Json& value) {
    Json config = gpt2_config();
    config[key] = value;
    return config;
  };
  expect_refused(gpt2("scale_attn_weights", false), "scale_attn_weights = false");
  expect_refused(gpt2("scale_attn_by_inverse_layer_idx", true), "scale_attn_by_inverse_layer_idx = true");
  expect_refused(gpt2("reorder_and_upcast_attn", true), "reorder_and_upcast_attn = true");
  expect_refused(gpt2("add_cross_attention", true), "add_cross_attention = true");
  expect_refused(gpt2("activation_function", "relu"), "activation_function = \"relu\"");
  expect_refused(gpt2("embd_pdrop", 0.3), "embd_pdrop and resid_pdrop differ");
  expect_refused(gpt2("n_head", 3), "n_embd = 4 is not a multiple of n_head = 3");
}

TEST_F(TinyModel, AcceptsWhatChangesNothing) {
  write_weights(llama_shapes());
  Json config = llama_config();
  for (const char* key :
       {"bos_token_id", "torch_dtype", "transformers_version", "use_cache", "pretraining_tp", "_name_or_path"})
    config[key] = 1;
  config["sliding_window"] = nullptr;
  config["unheard_of"] = nullptr;
  config["layer_types"] = {"full_attention"};
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  config["rope_theta"] = 5e5;
  config["hidden_act"] = "gelu_pytorch_tanh";
  write_config(config);
  const HuggingFaceModel model(folder_.path());
  EXPECT_EQ(model.model().rotary_base, 5e5);
  EXPECT_EQ(model.model().rotary_seq_len_interpolation_factor, 4.0);
  EXPECT_EQ(model.model().activation, spec::Activation::gelu_tanh);
  EXPECT_TRUE(model.model().gated_linear_unit);
  EXPECT_TRUE(model.model().tied());
}

}  // namespace
}  // namespace megatron::interop
