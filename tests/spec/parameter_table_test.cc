#include "spec/parameter_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "spec/model_count.h"
#include "support/reference_data.h"

namespace megatron::spec {
namespace {

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

RunSpec run_of(const ModelSpec& model) {
  RunSpec run;
  run.model = model;
  run.parallel.layers_per_stage = {model.num_layers};
  return run;
}

Shapes shapes_of(const std::vector<ParameterRow>& rows) {
  Shapes shapes;
  for (const auto& row : rows) {
    shapes[row.name] = {row.sharding.rows};
    if (row.sharding.num_dims == 2) shapes[row.name].push_back(row.sharding.cols);
  }
  return shapes;
}

/// Names and shapes of the tensors "param.*" in a safetensors file.
Shapes shapes_in(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  std::string header(length, '\0');
  file.read(header.data(), static_cast<std::streamsize>(length));
  Shapes shapes;
  const nlohmann::json tensors = nlohmann::json::parse(header);
  for (const auto& [name, entry] : tensors.items())
    if (name.rfind("param.", 0) == 0) shapes[name.substr(6)] = entry["shape"].get<std::vector<std::int64_t>>();
  return shapes;
}

ModelSpec reference_model(const nlohmann::json& entry) {
  const auto& c = entry["config"];
  ModelSpec m;
  m.num_layers = c["num_layers"];
  m.hidden_size = c["hidden_size"];
  m.num_attention_heads = c["num_attention_heads"];
  m.ffn_hidden_size = c["ffn_hidden_size"];
  m.kv_channels = c.value("kv_channels", m.hidden_size / m.num_attention_heads);
  m.num_query_groups = c.contains("num_query_groups") && !c["num_query_groups"].is_null()
                           ? c["num_query_groups"].get<std::int64_t>()
                           : m.num_attention_heads;
  m.vocab_size = m.padded_vocab_size = entry["options"]["vocab_size"];
  m.max_position_embeddings = entry["options"]["max_sequence_length"];
  m.normalization = c["normalization"] == "RMSNorm" ? Normalization::rms_norm : Normalization::layer_norm;
  m.gated_linear_unit = c.value("gated_linear_unit", false);
  m.add_bias_linear = c["add_bias_linear"];
  m.add_qkv_bias = c.value("add_qkv_bias", false);
  m.qk_layernorm = c.value("qk_layernorm", false);
  const std::string position = entry["model"]["position_embedding_type"];
  m.position_embedding = position == "rope"   ? PositionEmbedding::rope
                         : position == "none" ? PositionEmbedding::none
                                              : PositionEmbedding::learned_absolute;
  m.untie_embeddings_and_output_weights = !entry["model"]["share_embeddings_and_output_weights"].get<bool>();
  return m;
}

TEST(ParameterTable, NamesAndShapesOfMegatron) {
  const auto folder = megatron::testing::reference_dir() / "golden/mcore/model";
  MEGATRON_REQUIRE_REFERENCE(folder / "cases.json");
  const std::vector<std::string> families = {
      "gpt3",  "gpt3_untied", "gpt3_nopos", "gpt3_kvchannels", "gpt3_qkvbias_only", "gpt3_qk_layernorm",
      "llama", "llama_mha",   "llama_mqa",  "llama_tied",      "llama_geglu",       "llama_qk_layernorm"};
  int compared = 0;
  std::ifstream file(folder / "cases.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  for (const auto& entry : cases) {
    const std::string name = entry.value("name", "");
    if (std::find(families.begin(), families.end(), name) == families.end()) continue;
    const ModelSpec model = reference_model(entry);
    EXPECT_EQ(shapes_of(parameter_table(run_of(model))), shapes_in(folder / entry["ok"]["file"].get<std::string>()))
        << name;
    EXPECT_EQ(count_parameters(model).total, entry["ok"]["num_parameters"].get<std::int64_t>()) << name;
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<int>(families.size()));
}

TEST(ParameterTable, StagesAndShards) {
  ModelSpec m;
  m.num_layers = 3;
  m.hidden_size = 8;
  m.num_attention_heads = m.num_query_groups = 4;
  m.kv_channels = 2;
  m.ffn_hidden_size = 32;
  m.vocab_size = 37;
  m.padded_vocab_size = 48;
  m.max_position_embeddings = 16;
  RunSpec run = run_of(m);
  run.parallel.tensor_parallel = 2;
  run.parallel.pipeline_parallel = 2;
  run.parallel.layers_per_stage = {2, 1};
  const auto rows = parameter_table(run);
  EXPECT_EQ(rows.front().name, "embedding.word_embeddings.weight");
  EXPECT_EQ(rows.front().stages, (std::vector<int>{0, 1}));  // tied
  EXPECT_EQ(rows.front().sharding.local_rows, 24);
  std::int64_t sum = 0;
  for (const auto& row : rows) {
    sum += row.numel();
    if (row.name == "decoder.layers.2.mlp.linear_fc2.weight") {
      EXPECT_EQ(row.stages, (std::vector<int>{1}));
      EXPECT_EQ(row.sharding.local_cols, 16);
    }
  }
  EXPECT_EQ(sum, count_parameters(m).unpadded_vocab);
}

}  // namespace
}  // namespace megatron::spec
