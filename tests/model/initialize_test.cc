#include "model/build.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/grad_check.h"
#include "support/stage_fixture.h"

namespace megatron {
namespace {

using testing::WholeTensors;

spec::ModelSpec model_to_initialize() {
  spec::ModelSpec model;
  model.num_layers = 4;
  model.hidden_size = 48;
  model.num_attention_heads = 24;
  model.kv_channels = 4;
  model.num_query_groups = 2;
  model.ffn_hidden_size = 96;
  model.gated_linear_unit = true;
  model.activation = spec::Activation::silu;
  model.seq_length = 16;
  model.vocab_size = 61;
  model.qk_layernorm = true;
  return model;
}

WholeTensors initial(const spec::ModelSpec& model, int tp, int pp, std::uint64_t seed = 7) {
  const spec::RunSpec run = testing::make_run(model, testing::make_parallel(tp, pp), /*divisible=*/8);
  testing::Gatherer gatherer;
  testing::run_mesh(run.parallel, [&](mesh::Rank& rank) {
    auto built = model::build_model(rank, run);
    model::Stage* const stage = &built->chunk(0);
    // Whatever was in the memory before must not shine through.
    for (nn::Parameter* p : stage->parameters())
      for (std::int64_t i = 0; i < p->value.numel(); ++i) p->value.data<float>()[i] = 99.0F;
    model::initialize_parameters(rank, stage->parameters(), seed);
    gatherer.add_values(*stage);
    for (const nn::Parameter* p : stage->parameters()) {
      std::vector<bool> covered(static_cast<std::size_t>(p->sharding.local_rows), false);
      for (const spec::Piece& piece : p->sharding.pieces)
        for (std::int64_t r = 0; r < piece.global.rows; ++r)
          covered[static_cast<std::size_t>(piece.local_row + r)] = true;
      for (std::int64_t i = 0; i < p->value.numel(); ++i)
        if (!covered[static_cast<std::size_t>(i / p->sharding.local_cols)]) {
          EXPECT_EQ(p->value.data<float>()[i], 0.0F) << "padding of " << p->name;
        }
    }
  });
  return std::move(gatherer.tensors);
}

double std_of(const std::vector<double>& v) {
  double sum = 0, squares = 0;
  for (const double x : v) {
    sum += x;
    squares += x * x;
  }
  const double n = static_cast<double>(v.size());
  return std::sqrt(squares / n - sum / n * (sum / n));
}

TEST(InitializeParameters, GivesTheSameBitsUnderEveryLayout) {
  const spec::ModelSpec model = model_to_initialize();
  const WholeTensors want = initial(model, 1, 1);
  for (const auto& [tp, pp] : {std::pair{2, 1}, {4, 1}, {8, 1}, {1, 2}, {1, 4}, {2, 2}, {3, 1}}) {
    if (tp == 3) continue;  // 2 groups over 3 ranks do not divide
    EXPECT_EQ(initial(model, tp, pp), want) << "tp " << tp << ", pp " << pp;
  }
  EXPECT_NE(initial(model, 1, 1, 8), want);
}

TEST(InitializeParameters, FollowsMegatronsDistributions) {
  spec::ModelSpec model = model_to_initialize();
  model.embedding_init_method_std = 0.5;
  const WholeTensors values = initial(model, 2, 1);
  const auto near = [&](const std::string& name, double std) {
    const std::vector<double>& v = values.at(name);
    // Four standard errors of a standard deviation.
    EXPECT_NEAR(std_of(v), std, 4 * std / std::sqrt(2.0 * static_cast<double>(v.size()))) << name;
  };
  near("decoder.layers.1.self_attention.linear_qkv.weight", 0.02);
  near("decoder.layers.1.mlp.linear_fc1.weight", 0.02);
  near("decoder.layers.3.self_attention.linear_proj.weight", 0.02 / std::sqrt(8.0));
  near("decoder.layers.0.mlp.linear_fc2.weight", 0.02 / std::sqrt(8.0));
  near("embedding.word_embeddings.weight", 0.5);
  near("embedding.position_embeddings.weight", 0.5);
  for (const auto& [name, v] : values) {
    if (name.find("layernorm.weight") != std::string::npos) {
      EXPECT_EQ(v, std::vector<double>(v.size(), 1.0)) << name;
    }
    if (name.find(".bias") != std::string::npos) {
      EXPECT_EQ(v, std::vector<double>(v.size(), 0.0)) << name;
    }
  }
  EXPECT_NE(values.at("decoder.layers.0.mlp.linear_fc1.weight"), values.at("decoder.layers.1.mlp.linear_fc1.weight"));
}

TEST(InitializeParameters, KnowsXavier) {
  spec::ModelSpec model = model_to_initialize();
  model.init_method_xavier_uniform = true;
  const WholeTensors values = initial(model, 2, 1);
  const auto check = [&](const std::string& name, double rows, double cols) {
    const double bound = std::sqrt(6.0 / (rows + cols));
    const std::vector<double>& v = values.at(name);
    for (const double x : v) ASSERT_LE(std::abs(x), bound) << name;
    EXPECT_NEAR(std_of(v) / (bound / std::sqrt(3.0)), 1.0, 4.0 / std::sqrt(static_cast<double>(v.size()))) << name;
  };
  check("decoder.layers.0.self_attention.linear_qkv.weight", 28 * 4, 48);
  check("decoder.layers.0.self_attention.linear_proj.weight", 48, 96);
  check("decoder.layers.2.mlp.linear_fc1.weight", 192, 48);
  check("embedding.word_embeddings.weight", 61, 48);
}

TEST(BuildStage, NamesAndMarksItsParameters) {
  const spec::RunSpec run = testing::make_run(model_to_initialize(), testing::make_parallel(2, 2));
  testing::run_mesh(run.parallel, [&](mesh::Rank& rank) {
    auto built = model::build_model(rank, run);
    model::Stage* const stage = &built->chunk(0);
    const auto& parameters = stage->parameters();
    if (rank.mesh.holds_first_stage()) {
      EXPECT_EQ(parameters[0]->name, "embedding.word_embeddings.weight");
      EXPECT_TRUE(parameters[0]->shared_embedding);
      EXPECT_EQ(parameters[1]->name, "embedding.position_embeddings.weight");
      EXPECT_EQ(parameters[2]->name, "decoder.layers.0.input_layernorm.weight");
    } else {
      EXPECT_EQ(parameters[0]->name, "decoder.layers.2.input_layernorm.weight");
      EXPECT_EQ(parameters.back()->name, "embedding.word_embeddings.weight");
      EXPECT_TRUE(parameters.back()->tied_use);
    }
    for (const nn::Parameter* p : parameters) {
      EXPECT_EQ(p->decay, p->sharding.num_dims == 2) << p->name;
      const bool head_norm =
          p->name.find("q_layernorm") != std::string::npos || p->name.find("k_layernorm") != std::string::npos;
      EXPECT_EQ(p->grad_reduction, head_norm ? nn::GradReduction::tensor_parallel : nn::GradReduction::none) << p->name;
    }
  });
}

TEST(BuildStage, SharesTheTiedTableOnOneStage) {
  const spec::RunSpec run = testing::make_run(model_to_initialize(), testing::make_parallel(1));
  testing::run_mesh(run.parallel, [&](mesh::Rank& rank) {
    auto built = model::build_model(rank, run);
    model::Stage* const stage = &built->chunk(0);
    EXPECT_EQ(stage->parameters().front()->value.storage(), stage->parameters().back()->value.storage());
    spec::RunSpec untied = run;
    untied.model.untie_embeddings_and_output_weights = true;
    auto other = model::build_model(rank, untied);
    EXPECT_EQ(other->parameters().back()->name, "output_layer.weight");
    EXPECT_FALSE(other->parameters().back()->tied_use);
    EXPECT_FALSE(other->parameters().front()->shared_embedding);
  });
}

TEST(BuildStage, DecaysHeadNormsOnRequest) {
  spec::RunSpec run = testing::make_run(model_to_initialize(), testing::make_parallel(1));
  run.optimizer.apply_wd_to_qk_layernorm = true;
  testing::run_mesh(run.parallel, [&](mesh::Rank& rank) {
    auto built = model::build_model(rank, run);
    model::Stage* const stage = &built->chunk(0);
    for (const nn::Parameter* p : stage->parameters()) {
      const bool head_norm =
          p->name.find("q_layernorm") != std::string::npos || p->name.find("k_layernorm") != std::string::npos;
      EXPECT_EQ(p->decay, head_norm || p->sharding.num_dims == 2) << p->name;
    }
  });
}

TEST(BuildStage, RefusesHeadsThatDoNotDivide) {
  spec::ModelSpec model = model_to_initialize();
  model.num_attention_heads = 6;
  model.num_query_groups = 2;
  const spec::RunSpec run = testing::make_run(model, testing::make_parallel(4));
  EXPECT_THROW(testing::run_mesh(run.parallel, [&](mesh::Rank& rank) { model::build_model(rank, run); }), Error);
}

}  // namespace
}  // namespace megatron
