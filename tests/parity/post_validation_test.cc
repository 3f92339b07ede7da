// Updates ahead of other stages: the same bits as updates after the norm of all stages is known.
#include <gtest/gtest.h>

#include <algorithm>

#include "training_case.h"

namespace megatron::parity {
namespace {

using testing::Layout;
using testing::SmallResult;
using Schedule = spec::PipelineSchedule;

struct PostValidationCase {
  std::string name;
  ModelChoice model;
  Setup setup;
  spec::OptimizerKind optimizer = spec::OptimizerKind::adam;
};

std::vector<PostValidationCase> cases() {
  const ModelChoice gpt = {false, true, 24, false}, llama = {true, false, 3, false};
  const ModelChoice gpt_bf16 = {false, true, 24, false, DType::bfloat16};
  const ModelChoice llama_bf16 = {true, false, 3, false, DType::bfloat16};
  const ModelChoice llama_tied = {true, true, 2, false};
  const auto with = [](Layout layout, Schedule schedule, int chunks = 1,
                       spec::ShardingStrategy sharding = spec::ShardingStrategy::no_shard) {
    Setup setup = {layout, schedule};
    setup.chunks = chunks;
    setup.sharding = sharding;
    setup.bucket_size = 700;
    return setup;
  };
  constexpr auto kOptim = spec::ShardingStrategy::optim, kGradients = spec::ShardingStrategy::optim_grads,
                 kParameters = spec::ShardingStrategy::optim_grads_params;
  const Layout two = {1, 2, 1, false, 1}, four = {1, 4, 1, false, 1}, replicas = {1, 2, 2, false, 1};
  Setup ends_alone = with(four, Schedule::zb_h2);
  ends_alone.pipeline_layout = "E|t*3|t|L";
  Setup perturbed = with({2, 2, 2, true, 1}, Schedule::zb_h1, 1, kOptim);
  perturbed.perturb_seed = 4711;
  return {
      {"TwoStages", llama, with(two, Schedule::one_f_one_b)},
      {"FourStagesTied", gpt, with(four, Schedule::one_f_one_b)},
      {"ZeroBubbleH1", llama, with(four, Schedule::zb_h1)},
      {"ZeroBubbleH2EndsAlone", llama, ends_alone},
      {"ZeroBubbleV", llama_tied, with(two, Schedule::zb_v, 2)},
      {"Interleaved", gpt, with(two, Schedule::interleaved, 2)},
      {"GpipeOfReplicas", gpt, with(replicas, Schedule::gpipe)},
      {"SharedStates", llama, with(replicas, Schedule::zb_h1, 1, kOptim)},
      {"SharedStatesBfloat16", gpt_bf16, with(replicas, Schedule::one_f_one_b, 1, kOptim)},
      {"SharedGradients", llama, with(replicas, Schedule::zb_h2, 1, kGradients)},
      {"SharedParameters", gpt, with(replicas, Schedule::zb_h1, 1, kParameters)},
      {"SharedParametersInV", llama_tied, with(replicas, Schedule::zb_v, 2, kParameters)},
      {"SharedParametersBfloat16", llama_bf16, with(replicas, Schedule::one_f_one_b, 1, kParameters)},
      {"Bfloat16", llama_bf16, with(four, Schedule::zb_h2)},
      {"AllAxesPerturbed", gpt, perturbed},
      {"MuonUnderTensorParallelism", gpt, with({2, 2, 1, true, 1}, Schedule::zb_h1), spec::OptimizerKind::muon},
  };
}

std::int64_t redone_steps(const SmallResult& result) {
  return std::count_if(result.steps.begin(), result.steps.end(),
                       [](const train::StepReport& step) { return step.redone == true; });
}

class PostValidation : public ::testing::TestWithParam<PostValidationCase> {};

/// Gradients that are never, always, and sometimes clipped.
TEST_P(PostValidation, KeepsTheBits) {
  const PostValidationCase& c = GetParam();
  spec::RunSpec run = base_run(c.model);
  run.batch.train_iters = 5;
  run.optimizer.kind = c.optimizer;
  run.optimizer.lr = 4e-3;
  run.optimizer.clip_grad = 0.0;
  const SmallResult free = train_setup(run, c.setup);
  std::vector<double> norms;
  for (const train::StepReport& step : free.steps) norms.push_back(step.grad_norm);
  std::sort(norms.begin(), norms.end());
  for (const double clip : {0.0, 1e-3, 0.98 * norms[2]}) {
    SCOPED_TRACE(str_cat("clip ", clip));
    run.optimizer.clip_grad = clip;
    const SmallResult plain = clip == 0.0 ? free : train_setup(run, c.setup);
    spec::RunSpec ahead = run;
    ahead.parallel.pipeline_post_validation = true;
    const SmallResult guessed = train_setup(ahead, c.setup);
    EXPECT_TRUE(differences(guessed, plain, run.model, Level::bits).empty())
        << joined(differences(guessed, plain, run.model, Level::bits));
    EXPECT_FALSE(plain.steps.front().redone.has_value());
    ASSERT_TRUE(guessed.steps.front().redone.has_value());
    if (clip == 0.0) {
      EXPECT_EQ(redone_steps(guessed), 0);
    }
    if (clip == 1e-3) {
      EXPECT_EQ(redone_steps(guessed), 5);
    }
    for (std::size_t i = 0; i < plain.steps.size(); ++i) {
      EXPECT_EQ(guessed.steps[i].consumed_samples, plain.steps[i].consumed_samples);
      EXPECT_EQ(guessed.steps[i].lr, plain.steps[i].lr);
      if (clip > 1e-3 && plain.steps[i].grad_norm < clip) {
        EXPECT_EQ(guessed.steps[i].redone, false) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parity, PostValidation, ::testing::ValuesIn(cases()),
                         [](const auto& c) { return c.param.name; });

/// Steps that overflow are skipped on all stages, with the loss scale and the schedule of updates after the norm.
TEST(PostValidationOfFloat16, OverflowsAreSkippedAlike) {
  for (const auto sharding :
       {spec::ShardingStrategy::no_shard, spec::ShardingStrategy::optim, spec::ShardingStrategy::optim_grads_params}) {
    spec::RunSpec run = base_run({true, false, 3, false, DType::float16});
    run.batch.train_iters = 30;
    run.numerics.loss_scale.initial = 4294967296.0 * 16.0;
    run.numerics.loss_scale.hysteresis = 1;
    run.numerics.loss_scale.window = 3;  // grows into the next overflow while steps are not closed one by one
    run.optimizer.lr_decay_style = spec::DecayStyle::linear;
    parity::Setup setup = {Layout{1, 2, 2, false, 1}, Schedule::zb_h1};
    setup.sharding = sharding;
    setup.bucket_size = 700;
    const SmallResult plain = train_setup(run, setup);
    run.parallel.pipeline_post_validation = true;
    const SmallResult guessed = train_setup(run, setup);
    EXPECT_TRUE(guessed.weights == plain.weights);
    ASSERT_EQ(guessed.steps.size(), plain.steps.size());
    std::int64_t skipped = 0;
    for (std::size_t i = 0; i < plain.steps.size(); ++i) {
      EXPECT_EQ(guessed.steps[i].skipped, plain.steps[i].skipped) << i;
      EXPECT_EQ(guessed.steps[i].loss_scale, plain.steps[i].loss_scale) << i;
      EXPECT_EQ(guessed.steps[i].lr, plain.steps[i].lr) << i;
      EXPECT_EQ(guessed.steps[i].loss, plain.steps[i].loss) << i;
      if (!plain.steps[i].skipped) {
        EXPECT_EQ(guessed.steps[i].grad_norm, plain.steps[i].grad_norm) << i;
      }
      skipped += plain.steps[i].skipped ? 1 : 0;
    }
    EXPECT_GE(skipped, 2);
    EXPECT_LT(skipped, 30);
  }
}

/// A batch that grows, evaluations and checkpoints in between, and a batch without any trained token.
TEST(PostValidationOfARun, GoesOnThroughEverythingBetweenSteps) {
  spec::RunSpec run = base_run({true, false, 3, false});
  run.batch.train_iters = 7;
  run.batch.global_batch_size = 8;
  run.batch.batch_steps = {{0, 4}, {8, 8}};
  run.batch.eval_interval = 3;
  run.batch.eval_iters = 2;
  run.log.log_num_zeros_in_grad = true;
  const parity::Setup setup = {Layout{1, 2, 1, false, 1}, Schedule::zb_h1};
  testing::SmallOptions options;
  options.train = testing::make_sequences(512, kLength, kVocab, [](std::int64_t sample, std::int64_t place) {
    return sample >= 24 && sample < 32 ? 0.0F : uneven_mask(sample, place);
  });
  options.valid = testing::make_sequences(64, kLength, kVocab);
  const SmallResult plain = train_setup(run, setup, options);
  run.parallel.pipeline_post_validation = true;
  const SmallResult guessed = train_setup(run, setup, options);
  EXPECT_TRUE(differences(guessed, plain, run.model, Level::bits).empty())
      << joined(differences(guessed, plain, run.model, Level::bits));
  ASSERT_EQ(guessed.evaluations.size(), plain.evaluations.size());
  EXPECT_GE(plain.evaluations.size(), 2U);
  for (std::size_t i = 0; i < plain.evaluations.size(); ++i)
    EXPECT_EQ(guessed.evaluations[i].loss, plain.evaluations[i].loss);
  std::int64_t empty = 0;
  for (std::size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_EQ(guessed.steps[i].num_zeros, plain.steps[i].num_zeros) << i;
    EXPECT_EQ(guessed.steps[i].skipped, plain.steps[i].skipped) << i;
    empty += plain.steps[i].trained_tokens == 0 ? 1 : 0;
  }
  EXPECT_EQ(empty, 1);
}

/// What rank 0 exchanges in step 3 becomes NaN: that step leaves no trace on any stage.
TEST(PostValidationOfARun, EndsAtTheNanOfOneStage) {
  spec::RunSpec run = base_run({true, false, 3, false});
  run.batch.train_iters = 6;
  run.optimizer.clip_grad = 0.0;
  run.fault.inject_fault = "rank=0,iteration=3,kind=nan";
  const parity::Setup setup = {Layout{1, 2, 1, false, 1}, Schedule::zb_h1};
  const SmallResult plain = train_setup(run, setup);
  run.parallel.pipeline_post_validation = true;
  const SmallResult guessed = train_setup(run, setup);
  EXPECT_EQ(plain.outcome.reason, train::EndReason::not_finite);
  EXPECT_EQ(guessed.outcome.reason, train::EndReason::not_finite);
  EXPECT_EQ(guessed.outcome.iteration, 2);
  EXPECT_EQ(plain.outcome.iteration, 2);
  EXPECT_NE(guessed.outcome.error.find("iteration 3: NaN or Inf in "), std::string::npos) << guessed.outcome.error;
  EXPECT_TRUE(guessed.weights == plain.weights);
}

/// The signal is seen while the next step has begun: that one is forgotten.
TEST(PostValidationOfARun, StopsAfterTheStepOfTheSignal) {
  spec::RunSpec run = base_run({true, false, 3, false});
  run.batch.train_iters = 6;
  run.parallel.pipeline_post_validation = true;
  const parity::Setup setup = {Layout{1, 2, 1, false, 1}, Schedule::zb_h1};
  std::atomic<int> signal = 0;
  testing::SmallOptions options;
  options.stop_signal = &signal;
  options.hooks.after_step = [&](train::RankParts& parts, const train::StepReport& report) {
    if (parts.is_main() && report.iteration == 2) signal = 15;
  };
  const SmallResult stopped = train_setup(run, setup, options);
  EXPECT_EQ(stopped.outcome.reason, train::EndReason::signal);
  EXPECT_LE(stopped.outcome.iteration, 4);
  run.batch.train_iters = stopped.outcome.iteration;
  run.parallel.pipeline_post_validation = false;
  EXPECT_TRUE(train_setup(run, setup).weights == stopped.weights);
}

}  // namespace
}  // namespace megatron::parity
