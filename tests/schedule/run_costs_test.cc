#include "schedule/run_costs.h"

#include <gtest/gtest.h>

#include "schedule/passes.h"
#include "schedule/program_text.h"
#include "schedule/training_program.h"

namespace megatron::schedule {
namespace {

constexpr std::int64_t kStash = 1000, kMessage = 1, kKept = 600;

/// A stash weighs 1000, what waits for W 600, a message 1 and a pass nothing beyond what it takes and leaves.
spec::StagePasses plain_passes() {
  spec::StagePasses passes;
  passes.stash = kStash;
  passes.kept_for_weights = kKept;
  passes.forward = {kStash, 0};
  passes.backward = passes.input_backward = {kStash, 0};
  return passes;
}

std::int64_t peak_of(const Program& program, int rank) {
  const std::vector<spec::StagePasses> passes(static_cast<std::size_t>(program.placement.num_chunks), plain_passes());
  return peak_of_passes(program.lists[static_cast<std::size_t>(rank)], program.placement, passes, kMessage).activations;
}

spec::ParallelSpec parallel_of(spec::PipelineSchedule schedule, int stages) {
  spec::ParallelSpec parallel;
  parallel.world_size = parallel.pipeline_parallel = stages;
  parallel.data_parallel = 1;
  parallel.schedule = schedule;
  return parallel;
}

TEST(RunCosts, StashesInFlightAreThoseOfTheSchedule) {
  const int p = 4;
  const std::int64_t m = 9;
  for (int rank = 0; rank < p; ++rank) {
    const auto stashes = [&](spec::PipelineSchedule schedule) {
      return peak_of(training_program(parallel_of(schedule, p), m), rank) / kStash;
    };
    EXPECT_EQ(stashes(spec::PipelineSchedule::gpipe), m);
    EXPECT_EQ(stashes(spec::PipelineSchedule::one_f_one_b), p - rank);
  }
}

TEST(RunCosts, WhatWaitsForWCountsUntilW) {
  // Both I of a rank wait: two of them weigh more than one stash.
  const Program two = insert_communication(parse_program("0F0,0F1,0I0,0I1,0W0,0W1"));
  EXPECT_EQ(peak_of(two, 0), 2 * kStash);
  const Program three = insert_communication(parse_program("0F0,0I0,0F1,0I1,0F2,0I2,0W0,0W1,0W2"));
  EXPECT_EQ(peak_of(three, 0), 2 * kKept + kStash);
}

spec::RunSpec small_run() {
  spec::RunSpec run;
  auto& m = run.model;
  m.num_layers = 4;
  m.hidden_size = 32;
  m.num_attention_heads = m.num_query_groups = 4;
  m.kv_channels = 8;
  m.ffn_hidden_size = 128;
  m.seq_length = m.max_position_embeddings = 16;
  m.vocab_size = m.padded_vocab_size = 64;
  m.hidden_dropout = m.attention_dropout = 0;
  run.batch.micro_batch_size = 2;
  run.batch.num_micro_batches = 8;
  run.parallel.data_parallel = 1;
  return run;
}

TEST(RunCosts, MemoryHasOneEntryPerRankAndTellsStagesApart) {
  spec::RunSpec run = small_run();
  run.parallel.world_size = 8;
  run.parallel.tensor_parallel = run.parallel.pipeline_parallel = run.parallel.data_parallel = 2;
  run.parallel.layers_per_stage = {2, 2};
  const RunCosts costs = run_costs(run);
  ASSERT_EQ(costs.memory.size(), 8U);
  EXPECT_GT(costs.memory[0].activations, costs.memory[7].activations);  // two micro-batches in flight, one
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(costs.memory[0].total(), costs.memory[rank].total()) << rank;
}

/// Bytes over data parallelism as each strategy promises them; P is padded here to itself.
TEST(RunCosts, DataParallelTraffic) {
  spec::RunSpec run = small_run();
  run.model.untie_embeddings_and_output_weights = true;
  run.model.hidden_size = 64;
  run.model.kv_channels = 16;
  run.model.ffn_hidden_size = 256;
  run.parallel.world_size = run.parallel.data_parallel = 4;
  run.parallel.layers_per_stage = {4};
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    run.numerics.params_dtype = dtype;
    const std::int64_t b = dtype_size(dtype), d = 4, m = run.batch.num_micro_batches;
    const auto sent = [&](bool zero, bool fsdp, spec::ShardingStrategy strategy) {
      spec::RunSpec other = run;
      other.parallel.use_distributed_optimizer = zero;
      other.parallel.use_megatron_fsdp = fsdp;
      other.parallel.data_parallel_sharding_strategy = strategy;
      std::int64_t sum = 0, elements = spec::flat_plan(other, 0, spec::optimizer_shards(other)).num_elements();
      const RunCosts costs = run_costs(other);
      for (const auto& [operation, bytes] : costs.step_traffic.at("dp")) sum += bytes;
      return std::pair{sum, (d - 1) * elements / d};
    };
    const auto [plain, share] = sent(false, false, spec::ShardingStrategy::no_shard);
    EXPECT_EQ(plain, 2 * share * 4);
    const auto [first, first_share] = sent(true, false, spec::ShardingStrategy::optim);
    EXPECT_EQ(first, first_share * (4 + b));
    const auto [second, second_share] = sent(false, true, spec::ShardingStrategy::optim_grads);
    EXPECT_EQ(second, second_share * (4 * m + b));
    const auto [third, third_share] = sent(false, true, spec::ShardingStrategy::optim_grads_params);
    EXPECT_EQ(third, third_share * m * (4 + 2 * b));
  }
}

/// A long step costs no more than a short one in memory, and is not walked through.
TEST(RunCosts, MemoryDoesNotGrowWithTheStep) {
  spec::RunSpec run = small_run();
  run.parallel.world_size = run.parallel.pipeline_parallel = 4;
  run.parallel.layers_per_stage = {1, 1, 1, 1};
  for (const auto schedule : {spec::PipelineSchedule::one_f_one_b, spec::PipelineSchedule::zb_h1}) {
    run.parallel.schedule = schedule;
    run.batch.num_micro_batches = 16;
    const RunCosts few = run_costs(run);
    run.batch.num_micro_batches = 10'000'000;
    const RunCosts many = run_costs(run);
    for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(few.memory[rank].total(), many.memory[rank].total());
    EXPECT_EQ(many.step_traffic.at("pp").at("send"), few.step_traffic.at("pp").at("send") / 16 * 10'000'000);
  }
}

/// With GPipe a rank holds every micro-batch of a step, however many.
TEST(RunCosts, GpipeGrowsByAStashWithEachMicroBatch) {
  spec::RunSpec run = small_run();
  run.parallel.world_size = run.parallel.pipeline_parallel = 2;
  run.parallel.layers_per_stage = {2, 2};
  run.parallel.schedule = spec::PipelineSchedule::gpipe;
  const spec::StageShape first = spec::rank_shapes(run, 0).front();
  const std::int64_t stash = first.stash_bytes(run.batch.micro_batch_size * run.model.seq_length, {});
  const auto activations = [&](std::int64_t count) {
    run.batch.num_micro_batches = count;
    return run_costs(run).memory.front().activations;
  };
  for (const std::int64_t count : {3, 8, 9, 30, 1'000'000})
    EXPECT_EQ(activations(count), activations(2) + (count - 2) * stash) << count;
}

// Per token and layer of GPT-2, from the backward pass of each operation. F keeps the residual stream and the norms'
// outputs (4 H), queries, keys, values (3 H), attention output (H), the MLP before and after GELU (8 H), and in fp32
// the norms' statistics (4) and one log-sum-exp per head. W needs each product's input (H, H, H, 4 H) and the gradient
// of its output (3 H, H, 4 H, H), and of the norms what their weights need.
TEST(RunCosts, WhatWNeedsOfAStash) {
  spec::RunSpec run = small_run();
  run.parallel.world_size = run.parallel.pipeline_parallel = 4;
  run.model.num_layers = 8;
  run.parallel.layers_per_stage = {2, 2, 2, 2};
  const double h = 32, heads = 4, stash = 16 * h + 4 + heads, products = 16 * h;
  const double kept = kept_after_input_grad(run);
  EXPECT_GE(kept, products / stash);
  EXPECT_LE(kept, 1.0);
  // With full recompute F keeps the input of each layer alone (H), and W needs what recompute brought back.
  run.recompute.granularity = spec::RecomputeGranularity::full;
  run.recompute.method = spec::RecomputeMethod::uniform;
  run.recompute.num_layers = 1;
  EXPECT_GE(kept_after_input_grad(run), 16.0);
}

}  // namespace
}  // namespace megatron::schedule
