#include "spec/run_memory.h"

#include <gtest/gtest.h>

#include "spec/model_count.h"

namespace megatron::spec {
namespace {

RunSpec small_run() {
  RunSpec run;
  auto& m = run.model;
  m.num_layers = 4;
  m.hidden_size = 16;
  m.num_attention_heads = m.num_query_groups = 4;
  m.kv_channels = 4;
  m.ffn_hidden_size = 64;
  m.seq_length = m.max_position_embeddings = 8;
  m.vocab_size = m.padded_vocab_size = 32;
  run.batch.micro_batch_size = 2;
  run.batch.global_batch_size = 16;
  run.batch.num_micro_batches = 8;
  run.parallel.pipeline_parallel = 2;
  run.parallel.data_parallel = 1;
  run.parallel.layers_per_stage = {2, 2};
  return run;
}

TEST(RunMemory, MicroBatchesInFlight) {
  RunSpec run = small_run();
  EXPECT_EQ(live_chunk_stashes(run, 0), 2);
  EXPECT_EQ(live_chunk_stashes(run, 1), 1);
  run.batch.num_micro_batches = 1;
  EXPECT_EQ(live_chunk_stashes(run, 0), 1);
  run = small_run();
  run.parallel.schedule = PipelineSchedule::gpipe;
  EXPECT_EQ(live_chunk_stashes(run, 1), 8);
  // Zero-bubble schedules hold as much on all stages.
  run.parallel.schedule = PipelineSchedule::zb_h1;
  EXPECT_EQ(live_chunk_stashes(run, 1), 2);
  run.parallel.schedule = PipelineSchedule::zb_h2;
  EXPECT_EQ(live_chunk_stashes(run, 1), 3);
  run.parallel.schedule = PipelineSchedule::zb_auto;
  EXPECT_EQ(live_chunk_stashes(run, 1), 2);
  run.parallel.pipeline_memory_limit = 1.5;
  EXPECT_EQ(live_chunk_stashes(run, 0), 3);
  run.parallel.schedule = PipelineSchedule::from_file;
  run.parallel.pipeline_memory_limit.reset();
  EXPECT_EQ(live_chunk_stashes(run, 0), 8);
}

TEST(RunMemory, ParametersGradientsMoments) {
  RunSpec run = small_run();
  run.model.untie_embeddings_and_output_weights = true;
  const auto stages = memory_per_rank(run);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].parameters + stages[1].parameters, 4 * count_parameters(run.model).total);
  for (const auto& m : stages) {
    EXPECT_EQ(m.gradients, m.parameters);
    EXPECT_EQ(m.optimizer, 2 * m.parameters);
  }
  run.optimizer.kind = OptimizerKind::sgd;
  EXPECT_EQ(memory_per_rank(run)[0].optimizer, stages[0].parameters);
  run.optimizer.sgd_momentum = 0;
  EXPECT_EQ(memory_per_rank(run)[0].optimizer, 0);
  // The first stage keeps two micro-batches, the last one.
  EXPECT_GT(stages[0].stash, stages[1].stash);
}

TEST(RunMemory, TiedTableHasTwoGradientsOnOneStage) {
  RunSpec run = small_run();
  run.parallel.pipeline_parallel = 1;
  run.parallel.layers_per_stage = {4};
  const auto m = memory_per_rank(run).front();
  EXPECT_EQ(m.gradients - m.parameters, 4 * 32 * 16);
}

}  // namespace
}  // namespace megatron::spec
