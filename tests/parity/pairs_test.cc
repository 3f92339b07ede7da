// A fixed list of pairs over 20 steps: long enough for an error of one step to grow, on a task that is learnt
// meanwhile.
#include <gtest/gtest.h>

#include "training_case.h"

namespace megatron::parity {
namespace {

using testing::Layout;
using testing::SmallResult;
constexpr auto kGpipe = spec::PipelineSchedule::gpipe;

spec::RunSpec long_run(const ModelChoice& model) {
  spec::RunSpec run = base_run(model);
  run.batch.train_iters = 20;
  run.optimizer.lr = 4e-3;
  run.optimizer.lr_warmup_iters = 2;
  run.optimizer.lr_decay_style = spec::DecayStyle::cosine;
  return run;
}

/// {tp, pp, dp, sp, micro-batch}
std::vector<TrainingCase> pairs() {
  const ModelChoice gpt = {false, true, 24, false}, gpt_untied = {false, false, 3, false};
  const ModelChoice gpt_norm = {false, true, 2, true};
  const ModelChoice llama = {true, false, 3, false}, llama_tied = {true, true, 2, false};
  const ModelChoice llama_one = {true, false, 1, true};
  const Setup one = {Layout{1, 1, 1, false, 2}};
  const auto recomputing = [](Layout layout, spec::RecomputeSpec recompute) {
    Setup setup = {layout};
    setup.recompute = recompute;
    return setup;
  };
  const auto scheduled = [](Setup setup, spec::PipelineSchedule schedule, int chunks = 1) {
    setup.schedule = schedule;
    setup.chunks = chunks;
    return setup;
  };
  const auto laid_out = [](Layout layout, const char* text, spec::PipelineSchedule schedule, int chunks) {
    Setup setup = {layout, schedule};
    setup.chunks = chunks;
    setup.pipeline_layout = text;
    return setup;
  };
  const auto sharded = [](Setup setup, bool overlap, std::int64_t bucket_size,
                          spec::ShardingStrategy strategy = spec::ShardingStrategy::optim) {
    setup.sharding = strategy;
    setup.overlap = overlap;
    setup.bucket_size = bucket_size;
    return setup;
  };
  const auto every = [](Setup setup) {
    setup.reduce_every_microbatch = true;
    return setup;
  };
  constexpr auto kTwo = spec::ShardingStrategy::optim_grads, kThree = spec::ShardingStrategy::optim_grads_params;
  using Schedule = spec::PipelineSchedule;
  const ModelChoice gpt_bf16 = {false, true, 24, false, DType::bfloat16};
  const ModelChoice llama_bf16 = {true, false, 3, false, DType::bfloat16};
  const Layout two = {1, 2, 1, false, 1}, four = {1, 4, 1, false, 1}, replicas = {1, 2, 2, false, 1};
  constexpr auto kFull = spec::RecomputeGranularity::full, kSelective = spec::RecomputeGranularity::selective;
  constexpr auto kUniform = spec::RecomputeMethod::uniform, kBlock = spec::RecomputeMethod::block;
  const Layout two_stages = {2, 2, 1, true, 2};
  const Setup stages = {Layout{2, 2, 2, true, 1}}, perturbed = {Layout{2, 2, 2, true, 1}, {}, 2, 4711, 1000};
  return {
      {"TensorParallel", gpt, one, {Layout{2, 1, 1, false, 2}}, Level::close},
      {"SequenceParallelOfThree", gpt_untied, one, {Layout{3, 1, 1, true, 2}}, Level::close},
      {"EightRanksShareTwoGroups", gpt_norm, one, {Layout{8, 1, 1, true, 4}}, Level::close},
      {"MicroBatchSize", gpt, {Layout{1, 1, 1, false, 1}}, {Layout{1, 1, 1, false, 8}}, Level::close},
      {"DataParallel", llama, one, {Layout{1, 1, 4, false, 1}}, Level::close},
      {"AllAxes", llama_tied, one, stages, Level::close},
      {"OneGroupOnFourRanks", llama_one, one, {Layout{4, 1, 2, true, 2}}, Level::close},
      {"TwoLayoutsOfEight", gpt, {Layout{2, 4, 1, false, 2}}, {Layout{4, 1, 2, true, 1}}, Level::close},
      {"StageCuts", gpt, {Layout{2, 1, 1, true, 2}}, {Layout{2, 4, 1, true, 2}}, Level::bits},
      {"Schedules", llama, {Layout{1, 4, 1, false, 1}}, {Layout{1, 4, 1, false, 1}, kGpipe}, Level::bits},
      {"UnevenStages",
       llama_tied,
       {Layout{1, 2, 2, false, 1}},
       {Layout{1, 2, 2, false, 1}, kGpipe, 1, 0, {}, 1},
       Level::bits},
      {"ThreadsBucketsAndTiming", gpt_norm, stages, perturbed, Level::bits},
      {"ZeroBubbleH1", gpt, {four}, scheduled({four}, Schedule::zb_h1, 1), Level::bits},
      {"ZeroBubbleH2", llama, {four}, scheduled({four}, Schedule::zb_h2, 1), Level::bits},
      {"ZeroBubbleV", llama_tied, {two}, scheduled({two}, Schedule::zb_v, 2), Level::bits},
      {"Interleaved", gpt, {two}, scheduled({two}, Schedule::interleaved, 2), Level::bits},
      {"LayoutWithEndsAlone",
       gpt,
       {Layout{2, 4, 1, true, 1}},
       laid_out({2, 4, 1, true, 1}, "E|t*3|t|L", Schedule::one_f_one_b, 1),
       Level::bits},
      {"LayoutWithEmptyStage",
       llama,
       {replicas},
       laid_out(replicas, "E|tt||ttL", Schedule::interleaved, 2),
       Level::bits},
      {"LayoutZeroBubbleV", llama_tied, {four}, laid_out(four, "E|t||t|t||t|L", Schedule::zb_v, 2), Level::bits},
      {"LayoutZeroBubbleVBfloat16",
       gpt_bf16,
       {replicas},
       laid_out(replicas, "E|ttt|t|L", Schedule::zb_v, 2),
       Level::bits},
      {"DistributedOptimizer", gpt_norm, stages, sharded(stages, true, 1000), Level::bits},
      {"DistributedOptimizerOfFour",
       llama_tied,
       {Layout{1, 1, 4, false, 1}},
       sharded({Layout{1, 1, 4, false, 1}}, false, 700),
       Level::bits},
      {"DistributedOptimizerAndZeroBubble",
       llama,
       {replicas},
       sharded(scheduled({replicas}, Schedule::zb_v, 2), true, 500),
       Level::bits},
      {"ZeroTwoAndThree", gpt_norm, sharded(stages, true, 900, kTwo), sharded(stages, false, 5000, kThree),
       Level::bits},
      {"ZeroThreeAndTimingAndStageCuts", llama_tied, sharded({Layout{1, 1, 2, false, 1}}, true, 4000, kThree),
       sharded({Layout{1, 4, 2, false, 1}, {}, 2, 4711}, true, 600, kThree), Level::bits},
      {"ZeroThreeAndZeroBubbleV", llama, sharded({replicas}, true, 700, kTwo),
       sharded(scheduled({replicas}, Schedule::zb_v, 2), true, 500, kThree), Level::bits},
      {"ZeroThreeAndInterleaved", gpt_norm, sharded(scheduled({replicas}, kGpipe, 1), false, 3000, kTwo),
       sharded(scheduled({replicas}, Schedule::interleaved, 2), true, 3000, kThree), Level::bits},
      {"ZeroThreeAndRecompute", gpt, sharded({replicas}, true, 3000, kThree),
       sharded(scheduled(recomputing(replicas, {kFull, kUniform, 2, {}, false}), Schedule::zb_h1), true, 3000, kThree),
       Level::bits},
      {"ZeroOfOneMicroBatch",
       gpt_untied,
       {Layout{3, 1, 2, true, 4}},
       sharded({Layout{3, 1, 2, true, 4}}, true, 3000, kThree),
       Level::bits},
      {"ZeroOneAndTwoOfOneMicroBatch", gpt_bf16, sharded({Layout{1, 1, 4, false, 2}}, true, 900),
       sharded({Layout{1, 1, 4, false, 2}}, true, 900, kTwo), Level::bits},
      {"ReduceEveryMicroBatch", llama_tied, every({replicas}), sharded({replicas}, true, 900, kThree), Level::bits},
      {"ReduceEveryMicroBatchOfShards", llama_bf16, every(sharded({replicas}, true, 900)),
       sharded({replicas}, true, 900, kTwo), Level::bits},
      {"ZeroThreeAndPlain", llama, one, sharded({Layout{1, 2, 4, false, 1}}, true, 900, kThree), Level::close},
      {"Bfloat16StageCuts", gpt_bf16, {Layout{2, 1, 1, true, 2}}, {Layout{2, 4, 1, true, 2}}, Level::bits},
      {"Bfloat16ZeroBubble",
       llama_bf16,
       {replicas},
       sharded(scheduled({replicas}, Schedule::zb_v, 2), true, 500),
       Level::bits},
      {"Bfloat16Recompute",
       gpt_bf16,
       {two_stages},
       recomputing(two_stages, {kFull, kUniform, 2, {}, false}),
       Level::bits},
      {"RecomputeGroups", gpt, {two_stages}, recomputing(two_stages, {kFull, kUniform, 2, {}, false}), Level::bits},
      {"RecomputeFirstLayer",
       llama_tied,
       {two_stages},
       recomputing(two_stages, {kFull, kBlock, 1, {}, false}),
       Level::bits},
      {"RecomputeParts",
       gpt_norm,
       {two_stages},
       recomputing(two_stages, {kSelective, kUniform, 1, {true, true, true}, false}),
       Level::bits},
      {"RecomputeAttention",
       llama,
       {Layout{3, 1, 1, true, 2}},
       recomputing({3, 1, 1, true, 2}, {kSelective, kUniform, 1, {true, false, false}, false}),
       Level::bits},
      {"DistributeSavedActivations",
       gpt,
       {Layout{3, 1, 1, false, 2}},
       recomputing({3, 1, 1, false, 2}, {kFull, kUniform, 3, {}, true}),
       Level::bits},
  };
}

class Pairs : public ::testing::TestWithParam<TrainingCase> {};

TEST_P(Pairs, TwentySteps) {
  const TrainingCase& c = GetParam();
  SCOPED_TRACE(str_cat(model_text(c.model), ": ", setup_text(c.a), " and ", setup_text(c.b)));
  const spec::RunSpec run = long_run(c.model);
  const SmallResult a = train_setup(run, c.a), b = train_setup(run, c.b);
  ASSERT_EQ(a.steps.size(), 20U);
  EXPECT_TRUE(differences(a, b, run.model, c.level).empty()) << joined(differences(a, b, run.model, c.level));
  // The pair would prove less on a model that does not learn, or whose gradients are never clipped.
  EXPECT_LE(a.steps.back().loss, a.steps.front().loss - 0.3);
  std::int64_t clipped = 0;
  for (const train::StepReport& step : a.steps) clipped += step.grad_norm > run.optimizer.clip_grad ? 1 : 0;
  EXPECT_GE(clipped, 10);
}

INSTANTIATE_TEST_SUITE_P(Parity, Pairs, ::testing::ValuesIn(pairs()), [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace megatron::parity
