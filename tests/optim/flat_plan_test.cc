// Where the description says parameters lie in flat buffers is where they lie.
#include "spec/flat_plan.h"

#include <gtest/gtest.h>

#include "model/build.h"
#include "optim/flat_layout.h"
#include "optim/update_rule.h"
#include "support/run_ranks.h"
#include "support/stage_fixture.h"

namespace megatron::optim {
namespace {

spec::ModelSpec model_of(bool llama, bool tied) {
  spec::ModelSpec model;
  model.num_layers = 4;
  model.hidden_size = llama ? 40 : 72;  // no multiple of a segment
  model.num_attention_heads = 8;
  model.num_query_groups = llama ? 2 : 8;
  model.kv_channels = llama ? 6 : 9;
  model.ffn_hidden_size = 104;
  model.vocab_size = 61;
  model.seq_length = model.max_position_embeddings = 24;
  model.normalization = llama ? spec::Normalization::rms_norm : spec::Normalization::layer_norm;
  model.position_embedding = llama ? spec::PositionEmbedding::rope : spec::PositionEmbedding::learned_absolute;
  model.gated_linear_unit = model.qk_layernorm = llama;
  model.activation = llama ? spec::Activation::silu : spec::Activation::gelu_tanh;
  model.add_bias_linear = model.add_qkv_bias = !llama;
  model.untie_embeddings_and_output_weights = !tied;
  return model;
}

void expect_equal(mesh::Rank& rank, const spec::RunSpec& run) {
  auto built = model::build_model(rank, run);
  const int shards = spec::optimizer_shards(run);
  const spec::FlatPlan plan = spec::flat_plan(run, rank.mesh.pp.rank(), shards);
  FlatLayoutOptions options;
  options.bucket_size = *run.parallel.ddp_bucket_size;
  options.shards = shards;
  options.within_groups = spec::reduces_every_micro_batch(run);
  options.indivisible = [&run](const nn::Parameter& parameter) {
    return !is_elementwise(update_rule(run.optimizer, parameter));
  };
  const FlatLayout layout(built->parameters(), options);
  ASSERT_EQ(plan.parameters.size(), built->parameters().size());
  ASSERT_EQ(plan.buckets.size(), layout.buckets().size());
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    EXPECT_EQ(plan.buckets[b].begin, layout.buckets()[b].begin);
    EXPECT_EQ(plan.buckets[b].end, layout.buckets()[b].end);
    EXPECT_EQ(plan.buckets[b].shard_sizes, layout.buckets()[b].shard_sizes);
    EXPECT_EQ(plan.shares_memory(plan.buckets[b]), layout.values_bucket(b) != b);
  }
  for (int shard = 0; shard < shards; ++shard) {
    std::vector<spec::HeldRange> owned(plan.parameters.size());
    for (const ParameterRange& range : layout.owned_ranges(shard))
      for (std::size_t i = 0; i < owned.size(); ++i)
        if (built->parameters()[i] == range.parameter) owned[i] = {range.begin, range.end};
    for (std::size_t i = 0; i < owned.size(); ++i) {
      const nn::Parameter& parameter = *built->parameters()[i];
      EXPECT_EQ(plan.parameters[i].name, parameter.name);
      EXPECT_EQ(plan.parameters[i].numel(), parameter.value.numel()) << parameter.name;
      EXPECT_EQ(static_cast<int>(plan.parameters[i].sum), static_cast<int>(parameter.grad_reduction)) << parameter.name;
      EXPECT_EQ(plan.owned(i, shard).size(), owned[i].size()) << parameter.name << ", owner " << shard;
      if (owned[i].size() > 0) {
        EXPECT_EQ(plan.owned(i, shard).begin, owned[i].begin) << parameter.name << ", owner " << shard;
      }
    }
  }
}

TEST(FlatPlan, IsTheLayoutOfTheBuffers) {
  using spec::ShardingStrategy;
  for (const bool llama : {false, true})
    for (const bool tied : {false, true})
      for (const int tp : {1, 4})
        for (const int pp : {1, 2})
          for (const auto strategy :
               {ShardingStrategy::no_shard, ShardingStrategy::optim, ShardingStrategy::optim_grads})
            for (const bool muon : {false, true}) {
              spec::RunSpec run =
                  testing::make_run(model_of(llama, tied), testing::make_parallel(tp, pp, 3, tp > 1 && llama), 8);
              run.parallel.ddp_bucket_size = 9000;
              run.parallel.use_megatron_fsdp = true;
              run.parallel.data_parallel_sharding_strategy = strategy;
              if (muon) run.optimizer.kind = spec::OptimizerKind::muon;
              for (int rank = 0; rank < run.parallel.world_size; rank += tp) {
                SCOPED_TRACE(str_cat("llama ", llama, ", tied ", tied, ", tp ", tp, ", pp ", pp, ", strategy ",
                                     static_cast<int>(strategy), ", muon ", muon, ", rank ", rank));
                testing::run_meta(run.parallel, rank, [&](mesh::Rank& r) { expect_equal(r, run); });
                if (::testing::Test::HasFailure()) return;
              }
            }
}

}  // namespace
}  // namespace megatron::optim
