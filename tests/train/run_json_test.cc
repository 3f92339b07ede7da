#include "train/run_json.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace megatron::train {
namespace {

TEST(RunJson, EveryFieldOfTheModelComesBack) {
  spec::RunSpec run;
  spec::ModelSpec& m = run.model;
  m.num_layers = 3;
  m.hidden_size = 24;
  m.num_attention_heads = 4;
  m.num_query_groups = 2;
  m.kv_channels = 6;
  m.ffn_hidden_size = 40;
  m.seq_length = 7;
  m.max_position_embeddings = 9;
  m.vocab_size = 37;
  m.padded_vocab_size = 40;
  m.make_vocab_size_divisible_by = 8;
  m.normalization = spec::Normalization::rms_norm;
  m.position_embedding = spec::PositionEmbedding::rope;
  m.rope_scaling.emplace();
  m.init_method_std = 0.3;
  m.embedding_init_method_std = 0.7;
  m.init_method_xavier_uniform = true;
  m.qk_layernorm = true;
  const spec::RunSpec read = run_from_json(run_to_json(run), "state.json");
  EXPECT_TRUE(read.model == m);
  EXPECT_EQ(read.model.embedding_init_method_std, 0.7);
  EXPECT_TRUE(read.model.init_method_xavier_uniform);
}

TEST(RunJson, DamageIsNamed) {
  try {
    run_from_json(R"({"num_layers": "three"})", "state.json");
    FAIL() << "accepted";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("state.json"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("num_layers"), std::string::npos);
  }
}

}  // namespace
}  // namespace megatron::train
