// 16-bit training and shared optimizer state: what they change, what they keep, and how they resume.
#include <gtest/gtest.h>

#include <cmath>

#include "support/small_run.h"
#include "support/temporary_folder.h"
#include "train/trainer.h"

namespace megatron::train {
namespace {

using megatron::testing::complete;
using megatron::testing::Layout;
using megatron::testing::make_sequences;
using megatron::testing::small_run;
using megatron::testing::SmallOptions;
using megatron::testing::SmallResult;
using megatron::testing::TemporaryFolder;
using megatron::testing::train_small;

SmallOptions sequences() {
  SmallOptions options;
  options.train = make_sequences(512, 16, 61);
  return options;
}

spec::RunSpec run_with(DType dtype, std::int64_t iterations) {
  spec::RunSpec run = small_run(/*llama=*/true);
  run.numerics.params_dtype = dtype;
  run.numerics.loss_scale.initial = 65536;
  run.batch.train_iters = iterations;
  run.model.hidden_dropout = 0.1;
  return run;
}

TEST(Precision, SixteenBitsFollowFloat32WithoutBeingIt) {
  const SmallResult wide = train_small(complete(run_with(DType::float32, 40), {}), sequences());
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    for (const bool wide_stream : {false, true}) {
      SCOPED_TRACE(str_cat(dtype_name(dtype), wide_stream ? " with a float32 residual stream" : ""));
      spec::RunSpec run = run_with(dtype, 40);
      run.numerics.fp32_residual_connection = wide_stream;
      const SmallResult narrow = train_small(complete(run, {}), sequences());
      ASSERT_EQ(narrow.steps.size(), 40U);
      EXPECT_NE(narrow.steps[0].loss, wide.steps[0].loss);
      EXPECT_NEAR(narrow.steps[0].loss, wide.steps[0].loss, 5e-3);
      EXPECT_NEAR(narrow.steps.back().loss, wide.steps.back().loss, 0.05);
      EXPECT_LT(narrow.steps.back().loss, narrow.steps.front().loss - 0.3);
    }
  }
}

TEST(Precision, TheResidualStreamMayStayFloat32InAPipeline) {
  spec::RunSpec run = run_with(DType::bfloat16, 3);
  run.numerics.fp32_residual_connection = true;
  const SmallResult one = train_small(complete(run, {1, 1, 1, false, 2}), sequences());
  const SmallResult two = train_small(complete(run, {1, 2, 1, false, 2}), sequences());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(one.steps[i].loss, two.steps[i].loss);
  EXPECT_EQ(one.weights, two.weights);
}

/// The default scale overflows at first, on every rank at the same steps; nothing moves but the samples.
TEST(Precision, AnOverflowSkipsTheStepOnAllRanks) {
  for (const Layout& layout : {Layout{1, 1, 1, false, 2}, Layout{1, 1, 2, false, 2}, Layout{2, 2, 1, true, 2}}) {
    SCOPED_TRACE(megatron::testing::layout_text(layout));
    spec::RunSpec run = run_with(DType::float16, 40);
    run.numerics.loss_scale.initial = 4294967296.0 * 1048576.0;
    run.numerics.loss_scale.hysteresis = 1;
    run.optimizer.lr_decay_style = spec::DecayStyle::linear;
    const SmallResult result = train_small(complete(run, layout), sequences());
    ASSERT_EQ(result.steps.size(), 40U);
    EXPECT_TRUE(result.steps.front().skipped);
    EXPECT_FALSE(result.steps.back().skipped);
    double scale = run.numerics.loss_scale.initial;
    std::int64_t skipped = 0;
    for (const StepReport& step : result.steps) {
      if (step.skipped) scale /= 2;
      skipped += step.skipped ? 1 : 0;
      EXPECT_EQ(step.loss_scale, scale) << step.iteration;
      EXPECT_EQ(step.consumed_samples, 8 * step.iteration);
      EXPECT_FALSE(step.nan);
    }
    EXPECT_GE(skipped, 3);
    // The schedule did not move while steps were skipped.
    EXPECT_EQ(result.steps[1].lr, result.steps[0].lr);
  }
}

TEST(Precision, EndlessOverflowsEndTheRunByName) {
  spec::RunSpec run = run_with(DType::float16, 100);
  run.numerics.loss_scale.constant = 1e30;
  const SmallResult result = train_small(complete(run, {1, 1, 2, false, 2}), sequences());
  EXPECT_EQ(result.outcome.reason, EndReason::not_finite);
  EXPECT_NE(result.outcome.error.find("iteration 50: gradients overflowed in 50 steps in a row"), std::string::npos)
      << result.outcome.error;
  EXPECT_NE(result.outcome.error.find("--loss-scale"), std::string::npos);
}

struct Resumed {
  const char* name;
  DType dtype;
  Layout layout;
  bool sharded;
  spec::PipelineSchedule schedule;
  bool same_bits;  // as the run that was not interrupted
};

/// A run of any precision and cut goes on as a run of any other.
TEST(Precision, CheckpointsLoadAtAnyPrecisionAndCut) {
  using Schedule = spec::PipelineSchedule;
  for (const DType first_dtype : {DType::bfloat16, DType::float32}) {
    spec::RunSpec base = run_with(first_dtype, 6);
    base.parallel.use_distributed_optimizer = true;
    base.parallel.ddp_bucket_size = 500;
    const Layout layout = {1, 1, 2, false, 2};
    const SmallResult whole = train_small(complete(base, layout), sequences());
    const TemporaryFolder folder;
    spec::RunSpec first = base;
    first.batch.exit_interval = 3;
    first.checkpoint.save = folder.path();
    train_small(complete(first, layout), sequences());
    const Resumed cases[] = {
        {"as it was", first_dtype, layout, true, Schedule::one_f_one_b, true},
        {"without shards", first_dtype, layout, false, Schedule::one_f_one_b, true},
        {"in four shards", first_dtype, {1, 1, 4, false, 1}, true, Schedule::one_f_one_b, false},
        {"TP and a zero-bubble pipeline", first_dtype, {2, 2, 1, true, 2}, true, Schedule::zb_h1, false},
        {"bfloat16", DType::bfloat16, layout, true, Schedule::one_f_one_b, false},
        {"float32", DType::float32, {1, 2, 1, false, 2}, false, Schedule::one_f_one_b, false},
        {"float16", DType::float16, layout, true, Schedule::one_f_one_b, false}};
    for (const Resumed& c : cases) {
      SCOPED_TRACE(str_cat(dtype_name(first_dtype), ": ", c.name));
      spec::RunSpec second = base;
      second.numerics.params_dtype = c.dtype;
      second.parallel.use_distributed_optimizer = c.sharded;
      second.parallel.schedule = c.schedule;
      second.checkpoint.load = folder.path();
      const SmallResult result = train_small(complete(second, c.layout), sequences());
      ASSERT_EQ(result.steps.size(), 3U);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(result.steps[i].loss, whole.steps[i + 3].loss, 5e-3);
        if (c.same_bits) {
          EXPECT_EQ(result.steps[i].loss, whole.steps[i + 3].loss);
        }
      }
      if (c.same_bits) {
        EXPECT_EQ(result.weights, whole.weights);
      }
    }
  }
}

TEST(Precision, TheLossScalerResumes) {
  spec::RunSpec base = run_with(DType::float16, 6);
  base.numerics.loss_scale.window = 4;
  const SmallResult whole = train_small(complete(base, {}), sequences());
  const TemporaryFolder folder;
  spec::RunSpec first = base;
  first.batch.exit_interval = 3;
  first.checkpoint.save = folder.path();
  train_small(complete(first, {}), sequences());
  spec::RunSpec second = base;
  second.checkpoint.load = folder.path();
  const SmallResult rest = train_small(complete(second, {}), sequences());
  ASSERT_EQ(rest.steps.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rest.steps[i].loss_scale, whole.steps[i + 3].loss_scale);
  EXPECT_EQ(rest.weights, whole.weights);
  EXPECT_EQ(whole.steps.back().loss_scale, 131072.0);
}

/// Half of the optimizer state, and the same bits.
TEST(Precision, ShardsHalveTheState) {
  std::int64_t state[2] = {0, 0}, mains[2] = {0, 0};
  SmallResult results[2];
  for (const bool sharded : {false, true}) {
    spec::RunSpec run = run_with(DType::bfloat16, 2);
    run.parallel.use_distributed_optimizer = sharded;
    SmallOptions options = sequences();
    options.hooks.at_end = [&, sharded](RankParts& parts) {
      if (!parts.is_main()) return;
      state[sharded] = parts.exec().allocator().tracker().live(MemoryKind::optimizer);
      mains[sharded] = parts.exec().allocator().tracker().live(MemoryKind::main_parameter);
    };
    results[sharded] = train_small(complete(run, {1, 1, 2, false, 2}), options);
  }
  EXPECT_EQ(results[0].weights, results[1].weights);
  EXPECT_NEAR(static_cast<double>(state[1]), 0.5 * static_cast<double>(state[0]), 0.02 * static_cast<double>(state[0]));
  EXPECT_NEAR(static_cast<double>(mains[1]), 0.5 * static_cast<double>(mains[0]), 0.02 * static_cast<double>(mains[0]));
}

/// A rank that fails while values are gathered ends the run with its own error.
TEST(Precision, AFaultDuringTheGatherEndsTheRun) {
  spec::RunSpec run = run_with(DType::bfloat16, 3);
  run.parallel.use_distributed_optimizer = true;
  run.parallel.ddp_bucket_size = 500;
  run.fault.inject_fault = "rank=1,iteration=2,kind=throw";
  try {
    train_small(complete(run, {1, 1, 2, false, 2}), sequences());
    FAIL() << "the run did not fail";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("injected fault"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace megatron::train
