#include "spec/model_count.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "spec/block_shape.h"

namespace megatron::spec {
namespace {

/// h 64, 4 heads of 16 in 2 groups, gated ffn 128, RMSNorm, no biases, 2 layers, 100 words, untied.
ModelSpec small_llama() {
  ModelSpec m;
  m.num_layers = 2;
  m.hidden_size = 64;
  m.num_attention_heads = 4;
  m.num_query_groups = 2;
  m.kv_channels = 16;
  m.ffn_hidden_size = 128;
  m.seq_length = m.max_position_embeddings = 8;
  m.vocab_size = m.padded_vocab_size = 100;
  m.normalization = Normalization::rms_norm;
  m.position_embedding = PositionEmbedding::rope;
  m.gated_linear_unit = true;
  m.add_bias_linear = false;
  m.untie_embeddings_and_output_weights = true;
  return m;
}

ModelSpec gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t length, std::int64_t ffn,
              std::int64_t vocab) {
  ModelSpec m;
  m.num_layers = layers;
  m.hidden_size = hidden;
  m.num_attention_heads = m.num_query_groups = heads;
  m.kv_channels = hidden / heads;
  m.ffn_hidden_size = ffn;
  m.seq_length = m.max_position_embeddings = length;
  m.vocab_size = m.padded_vocab_size = vocab;
  return m;
}

TEST(ModelCount, SmallLlamaByHand) {
  const ModelCount count = count_parameters(small_llama());
  EXPECT_EQ(count.total, 86848);
  EXPECT_EQ(count.layers[0], 36992);  // with the embedding 43 392, with norm and head 43 456
  EXPECT_EQ(count.layers[0] + count.embedding, 43392);
  EXPECT_EQ(count.layers[1] + count.final_norm + count.head, 43456);
}

TEST(ModelCount, PaddingCountsInBothTables) {
  ModelSpec m = small_llama();
  m.padded_vocab_size = 128;
  EXPECT_EQ(count_parameters(m).total, 86848 + 2 * 28 * 64);
  EXPECT_EQ(count_parameters(m).unpadded_vocab, 86848);
  m.untie_embeddings_and_output_weights = false;
  EXPECT_EQ(count_parameters(m).unpadded_vocab, 86848 - 6400);
}

TEST(ModelCount, Gpt2Is124Million) {
  // Published size of GPT-2 small: 124 439 808 with 50 257 words and 1024 positions.
  EXPECT_EQ(count_parameters(gpt(12, 768, 12, 1024, 3072, 50257)).total, 124439808);
}

TEST(ModelCount, AgreesWithTheShapesOfTheLayers) {
  for (bool gated : {false, true}) {
    ModelSpec m = small_llama();
    m.gated_linear_unit = gated;
    m.add_qkv_bias = gated;
    m.qk_layernorm = !gated;
    const StageShape whole = stage_shape(m, {1, false}, m.num_layers, true, true);
    EXPECT_EQ(whole.parameters(), count_parameters(m).total);
  }
}

TEST(ModelCount, FlopsOfMegatron) {
  // Values of Megatron-LM's own formula.
  ModelSpec tiny = gpt(4, 512, 8, 1024, 2048, 32000);
  EXPECT_EQ(flops_per_step(tiny, 8), 1526860873728.0);
  tiny.gated_linear_unit = true;
  EXPECT_EQ(flops_per_step(tiny, 8), 1733019303936.0);
  EXPECT_DOUBLE_EQ(flops_per_step(gpt(96, 12288, 96, 2048, 49152, 51200), 1536), 3340597800160198656.0);
  ModelSpec llama3 = gpt(32, 4096, 32, 8192, 14336, 128256);
  llama3.num_query_groups = 8;
  llama3.gated_linear_unit = true;
  EXPECT_DOUBLE_EQ(flops_per_step(llama3, 128), 53970627761012736.0);
  ModelSpec mixtral = gpt(32, 4096, 32, 4096, 14336, 32000);
  mixtral.num_query_groups = 8;
  mixtral.gated_linear_unit = true;
  DescribedSpec experts;
  experts.moe.num_experts = 8;
  experts.moe.moe_layers.assign(32, 1);
  EXPECT_DOUBLE_EQ(flops_per_step(mixtral, 256, experts), 83578276873764864.0);
}

TEST(ModelCount, FlopsFollowTheModel) {
  const ModelSpec base = small_llama();
  ModelSpec fewer_groups = base, wider = base;
  fewer_groups.num_query_groups = 1;
  wider.ffn_hidden_size = 256;
  EXPECT_LT(flops_per_step(fewer_groups, 1), flops_per_step(base, 1));
  EXPECT_GT(flops_per_step(wider, 1), flops_per_step(base, 1));
}

TEST(LayerPattern, ReadsNumbersAndLists) {
  EXPECT_EQ(parse_layer_pattern("2", 5), (std::vector<char>{1, 0, 1, 0, 1}));
  EXPECT_EQ(parse_layer_pattern("([0]*1+[1]*3)", 4), (std::vector<char>{0, 1, 1, 1}));
  EXPECT_EQ(parse_layer_pattern("([0,1]*2 + [1])", 5), (std::vector<char>{0, 1, 0, 1, 1}));
  EXPECT_EQ(parse_layer_pattern("[1]*28", 28).size(), 28u);
}

TEST(LayerPattern, RefusesWhatItCannotRead) {
  EXPECT_THROW(parse_layer_pattern("0", 4), ConfigError);
  EXPECT_THROW(parse_layer_pattern("[0]*3", 4), ConfigError);  // three layers, not four
  EXPECT_THROW(parse_layer_pattern("[0", 4), ConfigError);
  EXPECT_THROW(parse_layer_pattern("x", 4), ConfigError);
  EXPECT_THROW(parse_layer_pattern("[1]*9999999*9999999", 4), ConfigError);
}

}  // namespace
}  // namespace megatron::spec
