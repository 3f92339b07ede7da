// 16-bit training and shared optimizer state: what they change, what they keep, and how they resume.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

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
  spec::ShardingStrategy strategy;
  spec::PipelineSchedule schedule;
  bool same_bits;  // as the run that was not interrupted
};

/// A run of any precision and cut goes on as a run of any other.
TEST(Precision, CheckpointsLoadAtAnyPrecisionAndCut) {
  using Schedule = spec::PipelineSchedule;
  using Strategy = spec::ShardingStrategy;
  for (const DType first_dtype : {DType::bfloat16, DType::float32}) {
    spec::RunSpec base = run_with(first_dtype, 6);
    base.parallel.use_megatron_fsdp = true;
    base.parallel.data_parallel_sharding_strategy = Strategy::optim;
    base.parallel.ddp_bucket_size = 500;
    base.parallel.reduce_every_microbatch = true;  // one order of sums for all strategies
    const Layout layout = {1, 1, 2, false, 2};
    const SmallResult whole = train_small(complete(base, layout), sequences());
    const TemporaryFolder folder;
    spec::RunSpec first = base;
    first.batch.exit_interval = 3;
    first.checkpoint.save = folder.path();
    train_small(complete(first, layout), sequences());
    const Resumed cases[] = {
        {"as it was", first_dtype, layout, Strategy::optim, Schedule::one_f_one_b, true},
        {"without shards", first_dtype, layout, Strategy::no_shard, Schedule::one_f_one_b, true},
        {"in four shards", first_dtype, {1, 1, 4, false, 1}, Strategy::optim_grads, Schedule::one_f_one_b, false},
        {"in shards of values", first_dtype, layout, Strategy::optim_grads_params, Schedule::one_f_one_b, true},
        {"TP and a zero-bubble pipeline", first_dtype, {2, 2, 1, true, 2}, Strategy::optim, Schedule::zb_h1, false},
        {"bfloat16", DType::bfloat16, layout, Strategy::optim_grads_params, Schedule::one_f_one_b, false},
        {"float32", DType::float32, {1, 2, 1, false, 2}, Strategy::no_shard, Schedule::one_f_one_b, false},
        {"float16", DType::float16, layout, Strategy::optim, Schedule::one_f_one_b, false}};
    for (const Resumed& c : cases) {
      SCOPED_TRACE(str_cat(dtype_name(first_dtype), ": ", c.name));
      spec::RunSpec second = base;
      second.numerics.params_dtype = c.dtype;
      second.parallel.data_parallel_sharding_strategy = c.strategy;
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

/// The same files whatever data-parallel ranks share out, and a run in shards of values goes on as any other.
TEST(Precision, CheckpointsDoNotDependOnWhatIsShared) {
  const TemporaryFolder folder;
  const Layout layout = {1, 2, 2, false, 1};
  spec::RunSpec base = run_with(DType::bfloat16, 3);
  base.parallel.use_megatron_fsdp = base.parallel.reduce_every_microbatch = true;
  std::map<std::string, std::string> files[2];
  for (const bool params : {false, true}) {
    spec::RunSpec run = base;
    run.parallel.data_parallel_sharding_strategy =
        params ? spec::ShardingStrategy::optim_grads_params : spec::ShardingStrategy::no_shard;
    run.checkpoint.save = folder / (params ? "params" : "none");
    train_small(complete(run, layout), sequences());
    files[params] = megatron::testing::folder_bytes(*run.checkpoint.save);
    std::erase_if(files[params], [](const auto& file) { return file.first.find(".safetensors") == std::string::npos; });
  }
  EXPECT_FALSE(files[0].empty());
  EXPECT_TRUE(files[0] == files[1]);
  spec::RunSpec on = base;
  on.batch.train_iters = 5;
  on.parallel.data_parallel_sharding_strategy = spec::ShardingStrategy::optim_grads_params;
  spec::RunSpec plain = on;
  plain.parallel.data_parallel_sharding_strategy = spec::ShardingStrategy::no_shard;
  on.checkpoint.load = folder / "none";
  plain.checkpoint.load = folder / "params";
  const SmallResult a = train_small(complete(on, layout), sequences());
  const SmallResult b = train_small(complete(plain, layout), sequences());
  ASSERT_EQ(a.steps.size(), 2U);
  EXPECT_EQ(a.steps.back().loss, b.steps.back().loss);
  EXPECT_EQ(a.weights, b.weights);
}

/// With half of values, gradients and state each; between steps nothing is whole.
TEST(Precision, StageThreeHalvesEverything) {
  using Kind = MemoryKind;
  const Kind kinds[] = {Kind::parameter, Kind::gradient, Kind::optimizer, Kind::main_parameter};
  std::map<Kind, double> live[2];
  for (const bool shared : {false, true}) {
    spec::RunSpec run = run_with(DType::bfloat16, 2);
    run.parallel.use_megatron_fsdp = shared;
    SmallOptions options = sequences();
    options.hooks.after_step = [&, shared](RankParts& parts, const StepReport&) {
      if (!parts.is_main()) return;
      for (const Kind kind : kinds)
        live[shared][kind] = static_cast<double>(parts.exec().allocator().tracker().live(kind));
    };
    train_small(complete(run, {1, 1, 2, false, 2}), options);
  }
  for (const Kind kind : kinds) EXPECT_NEAR(live[1][kind] / live[0][kind], 0.5, 0.05) << tensor::memory_kind_name(kind);
}

/// Values, shards and the next update after evaluations: a run in shards evaluates and logs norms as any other.
TEST(Precision, StageThreeEvaluatesAndMeasuresAlike) {
  SmallResult results[2];
  for (const bool params : {false, true}) {
    spec::RunSpec run = run_with(DType::float32, 4);
    run.parallel.use_megatron_fsdp = true;
    run.parallel.data_parallel_sharding_strategy =
        params ? spec::ShardingStrategy::optim_grads_params : spec::ShardingStrategy::optim_grads;
    run.batch.eval_interval = 2;
    run.batch.eval_iters = 1;
    run.log.log_params_norm = run.log.log_num_zeros_in_grad = true;
    SmallOptions options = sequences();
    options.valid = make_sequences(64, 16, 61);
    results[params] = train_small(complete(run, {2, 1, 2, true, 2}), options);
  }
  ASSERT_EQ(results[0].steps.size(), results[1].steps.size());
  for (std::size_t i = 0; i < results[0].steps.size(); ++i) {
    EXPECT_EQ(results[0].steps[i].params_norm, results[1].steps[i].params_norm);
    EXPECT_EQ(results[0].steps[i].num_zeros, results[1].steps[i].num_zeros);
    EXPECT_EQ(results[0].steps[i].grad_norm, results[1].steps[i].grad_norm);
  }
  EXPECT_GT(results[0].steps.back().params_norm, 0.0);
  EXPECT_EQ(results[0].weights, results[1].weights);
}

/// A rank that fails while values are gathered ends the run with its own error.
TEST(Precision, AFaultDuringTheGatherEndsTheRun) {
  for (const auto strategy : {spec::ShardingStrategy::optim, spec::ShardingStrategy::optim_grads_params}) {
    spec::RunSpec run = run_with(DType::bfloat16, 3);
    run.parallel.use_megatron_fsdp = true;
    run.parallel.data_parallel_sharding_strategy = strategy;
    run.parallel.ddp_bucket_size = 500;
    run.fault.inject_fault = "rank=1,iteration=2,kind=throw";
    try {
      train_small(complete(run, {1, 1, 2, false, 2}), sequences());
      FAIL() << "the run did not fail";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("injected fault"), std::string::npos) << error.what();
    }
  }
}

/// A number in one rank's shard that is not finite ends the run on all ranks and is named, with the rank that owns it.
TEST(Precision, NanInOneShardIsFound) {
  spec::RunSpec run = run_with(DType::float32, 3);
  run.parallel.use_megatron_fsdp = true;
  SmallOptions options = sequences();
  std::string name;
  options.hooks.after_step = [&](RankParts& parts, const StepReport& report) {
    if (report.iteration != 1 || parts.mesh().dp.rank() != 1) return;
    for (optim::OwnedPart& part : parts.held_values()) {
      if (part.range.parameter->name.find("linear_qkv.weight") == std::string::npos) continue;
      part.value.data<float>()[0] = NAN;
      name = part.range.parameter->name;
      return;
    }
  };
  const SmallResult result = train_small(complete(run, {1, 1, 2, false, 2}), options);
  EXPECT_EQ(result.outcome.reason, EndReason::not_finite);
  ASSERT_FALSE(name.empty());
  EXPECT_NE(result.outcome.error.find(name), std::string::npos) << result.outcome.error;
  EXPECT_NE(result.outcome.error.find("rank 1"), std::string::npos) << result.outcome.error;
}

}  // namespace
}  // namespace megatron::train
