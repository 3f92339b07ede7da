#include "spec/run_memory.h"

#include <gtest/gtest.h>

#include "spec/model_count.h"

namespace megatron::spec {
namespace {

RunSpec small_run() {
  RunSpec run;
  auto& m = run.model;
  m.num_layers = 4;
  m.hidden_size = 64;
  m.num_attention_heads = m.num_query_groups = 4;
  m.kv_channels = 16;
  m.ffn_hidden_size = 256;
  m.seq_length = m.max_position_embeddings = 8;
  m.vocab_size = m.padded_vocab_size = 32;
  run.batch.micro_batch_size = 2;
  run.batch.global_batch_size = 16;
  run.batch.num_micro_batches = 8;
  run.parallel.world_size = run.parallel.pipeline_parallel = 2;
  run.parallel.data_parallel = 1;
  run.parallel.layers_per_stage = {2, 2};
  return run;
}

RankMemory lasting(const RunSpec& run, int pipeline_rank, int data_rank = 0) {
  return lasting_memory(run, flat_plan(run, pipeline_rank, optimizer_shards(run)), pipeline_rank, data_rank);
}

TEST(RunMemory, ParametersGradientsMoments) {
  RunSpec run = small_run();
  run.model.untie_embeddings_and_output_weights = true;
  EXPECT_EQ(lasting(run, 0).parameters + lasting(run, 1).parameters, 4 * count_parameters(run.model).total);
  for (const int rank : {0, 1}) {
    const RankMemory m = lasting(run, rank);
    EXPECT_EQ(m.gradients, m.parameters);  // all sizes are whole segments
    EXPECT_EQ(m.optimizer, 2 * m.parameters);
    EXPECT_EQ(m.main_parameters + m.activations + m.packed + m.communication, 0);
  }
  const std::int64_t parameters = lasting(run, 0).parameters;
  run.optimizer.kind = OptimizerKind::sgd;
  EXPECT_EQ(lasting(run, 0).optimizer, parameters);
  run.optimizer.sgd_momentum = 0;
  EXPECT_EQ(lasting(run, 0).optimizer, 0);
}

/// The first stage and the last are told apart, not averaged.
TEST(RunMemory, EachStageHasItsOwnNumbers) {
  RunSpec run = small_run();
  run.model.untie_embeddings_and_output_weights = true;
  const std::int64_t norm = 2 * 64, positions = 8 * 64;
  EXPECT_EQ(lasting(run, 0).parameters - lasting(run, 1).parameters, 4 * (positions - norm));
}

/// Weights and moments once more, on all ranks but the last.
TEST(RunMemory, CopiesToTakeAnUpdateBack) {
  RunSpec run = small_run();
  const RankMemory first = lasting(run, 0), last = lasting(run, 1);
  run.parallel.pipeline_post_validation = true;
  EXPECT_EQ(lasting(run, 0).optimizer - first.optimizer, 3 * first.parameters);
  EXPECT_EQ(lasting(run, 0).total() - first.total(), 3 * first.parameters);
  EXPECT_EQ(lasting(run, 1).optimizer, last.optimizer);
}

TEST(RunMemory, TiedTableHasTwoGradientsOnOneStage) {
  RunSpec run = small_run();
  run.parallel.world_size = run.parallel.pipeline_parallel = 1;
  run.parallel.layers_per_stage = {4};
  const RankMemory m = lasting(run, 0);
  EXPECT_EQ(m.gradients - m.parameters, 4 * 32 * 64);
}

TEST(RunMemory, SixteenBitWeightsHaveMainWeights) {
  RunSpec run = small_run();
  const RankMemory wide = lasting(run, 0);
  run.numerics.params_dtype = DType::bfloat16;
  const RankMemory narrow = lasting(run, 0);
  EXPECT_EQ(2 * narrow.parameters, wide.parameters);
  EXPECT_EQ(narrow.main_parameters, wide.parameters);
  EXPECT_EQ(narrow.gradients, wide.gradients);
  EXPECT_EQ(narrow.optimizer, wide.optimizer);
}

/// Shards of all owners add up to the whole, also where nothing divides.
TEST(RunMemory, OwnersShareStates) {
  RunSpec run = small_run();
  run.model.hidden_size = 60;
  run.model.kv_channels = 15;
  run.model.ffn_hidden_size = 250;
  const RankMemory whole = lasting(run, 0);
  run.parallel.use_distributed_optimizer = true;
  run.parallel.data_parallel = 3;
  run.parallel.world_size = 6;
  std::int64_t sum = 0;
  for (int owner = 0; owner < 3; ++owner) {
    const RankMemory m = lasting(run, 0, owner);
    sum += m.optimizer;
    EXPECT_NEAR(static_cast<double>(m.optimizer) / static_cast<double>(whole.optimizer), 1.0 / 3.0, 0.01);
    EXPECT_GE(m.gradients, whole.gradients);  // padded for equal shards
  }
  EXPECT_EQ(sum, whole.optimizer);
}

}  // namespace
}  // namespace megatron::spec
