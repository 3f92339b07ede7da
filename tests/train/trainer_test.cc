#include "train/trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <csignal>

#include "schedule/run_costs.h"
#include "support/small_run.h"

namespace megatron::train {
namespace {

using megatron::testing::complete;
using megatron::testing::Layout;
using megatron::testing::layout_text;
using megatron::testing::make_sequences;
using megatron::testing::relative_rms;
using megatron::testing::small_run;
using megatron::testing::SmallOptions;
using megatron::testing::SmallResult;
using megatron::testing::train_small;

SmallOptions sequences(std::function<float(std::int64_t, std::int64_t)> mask = nullptr) {
  SmallOptions options;
  options.train = make_sequences(512, 16, 61, std::move(mask));
  return options;
}

float uneven_mask(std::int64_t sample, std::int64_t place) {
  if ((sample + place) % 5 == 0) return 0.0F;
  return sample % 3 == 0 && place > 4 ? 0.0F : 1.0F;
}

TEST(Trainer, LossOfAnUntrainedModelIsThatOfChanceAndFalls) {
  for (const bool llama : {false, true}) {
    spec::RunSpec run = small_run(llama);
    run.batch.train_iters = 30;
    run.optimizer.lr = 1e-2;
    const SmallResult result = train_small(complete(run, {}), sequences());
    ASSERT_EQ(result.steps.size(), 30U);
    EXPECT_NEAR(result.steps.front().loss, std::log(61.0), 0.1);
    EXPECT_LT(result.steps.back().loss, result.steps.front().loss - 0.5);
    EXPECT_EQ(result.outcome.reason, EndReason::finished);
    EXPECT_EQ(result.outcome.consumed_samples, 30 * 8);
    EXPECT_EQ(result.steps[3].iteration, 4);
    EXPECT_EQ(result.steps[3].consumed_samples, 32);
    EXPECT_EQ(result.steps[3].trained_tokens, 8 * 16);
  }
}

TEST(Trainer, EveryLayoutGivesTheSameNumbers) {
  const std::vector<Layout> layouts = {{1, 1, 1, false, 4}, {2, 1, 1, false, 2}, {2, 1, 1, true, 1},
                                       {1, 2, 1, false, 2}, {1, 1, 2, false, 1}, {2, 2, 2, true, 2}};
  for (const bool llama : {false, true}) {
    spec::RunSpec run = small_run(llama);
    run.batch.train_iters = 4;
    run.model.hidden_dropout = 0.1;
    run.model.attention_dropout = 0.1;
    const SmallResult one = train_small(complete(run, {}), sequences(uneven_mask));
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(layout_text(layout) + (llama ? " llama" : " gpt2"));
      const SmallResult other = train_small(complete(run, layout), sequences(uneven_mask));
      ASSERT_EQ(one.steps.size(), other.steps.size());
      for (std::size_t i = 0; i < one.steps.size(); ++i) {
        EXPECT_NEAR(other.steps[i].loss / one.steps[i].loss, 1.0, 1e-5);
        EXPECT_NEAR(other.steps[i].grad_norm / one.steps[i].grad_norm, 1.0, 1e-4);
        EXPECT_EQ(other.steps[i].trained_tokens, one.steps[i].trained_tokens);
      }
      ASSERT_EQ(one.weights.size(), other.weights.size());
      for (const auto& [name, values] : one.weights)
        if (name.find("linear_qkv.bias") == std::string::npos) {
          EXPECT_LT(relative_rms(other.weights.at(name), values), 1e-4) << name;
        }
    }
  }
}

TEST(Trainer, TwoEqualRunsGiveTheSameBits) {
  spec::RunSpec run = small_run(false);
  run.model.hidden_dropout = 0.1;
  SmallOptions options = sequences();
  const spec::RunSpec whole = complete(run, {2, 2, 2, true, 1});
  const SmallResult a = train_small(whole, options);
  options.perturb_seed = 99;
  const SmallResult b = train_small(whole, options);
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm);
  }
  EXPECT_EQ(a.weights, b.weights);
}

// The mean is taken over the trained tokens of the whole batch, not over the means of samples with 1 and 3 of them.
TEST(Trainer, LossIsTheMeanOverTokensOfTheGlobalBatch) {
  const auto mask = [](std::int64_t sample, std::int64_t place) {
    return place < (sample % 2 == 0 ? 1 : 3) ? 1.0F : 0.0F;
  };
  spec::RunSpec run = small_run(false);
  run.batch.global_batch_size = 2;
  run.batch.train_iters = 1;
  std::vector<float> token_losses;  // of samples 0 and 1, as the model gives them
  SmallOptions observed = sequences(mask);
  observed.hooks.after_setup = [&](RankParts& parts) {
    parts.engine().set_loss_observer([&](std::int64_t, const Tensor& losses) {
      token_losses.insert(token_losses.end(), losses.data<float>(), losses.data<float>() + losses.numel());
    });
  };
  const SmallResult whole = train_small(complete(run, {1, 1, 1, false, 2}), observed);
  ASSERT_EQ(token_losses.size(), 32U);
  const double sum = static_cast<double>(token_losses[0]) + token_losses[16] + token_losses[17] + token_losses[18];
  for (const Layout& layout : {Layout{1, 1, 1, false, 2}, Layout{1, 1, 1, false, 1}, Layout{1, 1, 2, false, 1}}) {
    const SmallResult result = train_small(complete(run, layout), sequences(mask));
    EXPECT_EQ(result.steps[0].trained_tokens, 4);
    EXPECT_NEAR(result.steps[0].loss, sum / 4, 1e-6);
    for (const auto& [name, values] : whole.weights) {
      if (name.find("linear_qkv.bias") == std::string::npos) {
        EXPECT_LT(relative_rms(result.weights.at(name), values), 1e-5) << name;
      }
    }
  }
}

/// What --log-num-zeros-in-grad and --log-params-norm tell counts each logical element once.
TEST(Trainer, ZerosAndParameterNormAreThoseOfOneRank) {
  for (const bool llama : {false, true}) {
    spec::RunSpec run = small_run(llama);
    run.batch.train_iters = 2;
    run.log.log_num_zeros_in_grad = run.log.log_params_norm = true;
    const SmallResult one = train_small(complete(run, {1, 1, 1, false, 2}), sequences());
    EXPECT_GT(one.steps[0].params_norm, 0.0);
    EXPECT_GE(one.steps[0].num_zeros, 0);
    for (const Layout& layout : {Layout{2, 1, 1, true, 2}, Layout{1, 2, 2, false, 1}, Layout{2, 2, 2, false, 1}}) {
      const SmallResult other = train_small(complete(run, layout), sequences());
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(other.steps[i].num_zeros, one.steps[i].num_zeros);
        EXPECT_NEAR(other.steps[i].params_norm / one.steps[i].params_norm, 1.0, 1e-6);
      }
    }
  }
}

/// What an optimizer keeps is what the description says.
TEST(Trainer, OptimizerStateIsAsDescribed) {
  for (const auto kind :
       {spec::OptimizerKind::adam, spec::OptimizerKind::sgd, spec::OptimizerKind::lion, spec::OptimizerKind::muon})
    for (const auto scalar : {spec::OptimizerKind::adam, spec::OptimizerKind::lion}) {
      spec::RunSpec run = small_run(kind == spec::OptimizerKind::lion);
      run.batch.train_iters = 1;
      run.optimizer.kind = kind;
      run.optimizer.muon.scalar_optimizer = scalar;
      const spec::RunSpec whole = complete(run, {2, 2, 1, true, 2});
      const std::vector<spec::RankMemory> described = schedule::run_costs(whole).memory;
      SmallOptions options = sequences();
      options.hooks.at_end = [&](RankParts& parts) {
        std::int64_t bytes = 0;
        for (const optim::OptimizerState& state : parts.optimizer().states()) bytes += state.tensor.bytes();
        EXPECT_EQ(bytes, described.at(static_cast<std::size_t>(parts.mesh().rank)).optimizer);
      };
      train_small(whole, options);
    }
}

TEST(Trainer, MicroBatchSizeDoesNotChangeLossOrNorm) {
  spec::RunSpec run = small_run(true);
  run.batch.global_batch_size = 4;
  run.batch.train_iters = 2;
  const SmallResult one = train_small(complete(run, {1, 1, 1, false, 1}), sequences(uneven_mask));
  for (const std::int64_t micro_batch : {2, 4}) {
    const SmallResult other = train_small(complete(run, {1, 1, 1, false, micro_batch}), sequences(uneven_mask));
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(other.steps[i].loss / one.steps[i].loss, 1.0, 1e-6);
      EXPECT_NEAR(other.steps[i].grad_norm / one.steps[i].grad_norm, 1.0, 1e-6);
    }
  }
}

TEST(Trainer, AStepWithEveryTargetMaskedChangesNothingAndSaysSo) {
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 2;
  const auto only_second = [](std::int64_t sample, std::int64_t) { return sample < 8 ? 0.0F : 1.0F; };
  for (const Layout& layout : {Layout{}, Layout{2, 2, 1, true, 1}}) {
    const SmallResult result = train_small(complete(run, layout), sequences(only_second));
    EXPECT_TRUE(result.steps[0].skipped);
    EXPECT_FALSE(result.steps[0].nan);
    EXPECT_EQ(result.steps[0].trained_tokens, 0);
    EXPECT_EQ(result.steps[0].loss, 0.0);
    EXPECT_FALSE(result.steps[1].skipped);
    // The first update is the one of step 2: as if the masked step had not been.
    spec::RunSpec single = run;
    single.batch.train_iters = 1;
    SmallOptions shifted;
    shifted.train = make_sequences(512, 16, 61, only_second);
    bool said = false;
    for (const std::string& line : result.lines) said = said || line.find("0 trained tokens") != std::string::npos;
    EXPECT_TRUE(said);
    const SmallResult masked_only = train_small(complete(single, layout), shifted);
    SmallResult untouched;
    spec::RunSpec none = single;
    none.batch.train_iters = 0;
    untouched = train_small(complete(none, layout), shifted);
    EXPECT_EQ(masked_only.weights, untouched.weights);
  }
}

/// What a data-parallel rank brings to the sum becomes NaN. Where states are shared out, every rank still has what it
/// gave to the others' shards; else only the sum is left.
TEST(Trainer, AGradientThatIsNotFiniteIsThatOfTheRankWhereItAroseOrOfTheSum) {
  for (const int culprit : {0, 1}) {
    for (const bool shared : {false, true}) {
      spec::RunSpec run = small_run(true);
      run.parallel.use_distributed_optimizer = shared;
      run.fault.inject_fault = str_cat("rank=", culprit, ",iteration=2,kind=nan");
      const SmallResult result = train_small(complete(run, {1, 1, 2, false, 1}), sequences());
      EXPECT_EQ(result.outcome.reason, EndReason::not_finite);
      const std::string& error = result.outcome.error;
      EXPECT_NE(error.find("iteration 2: NaN or Inf in gradient of "), std::string::npos) << error;
      const std::string place = shared ? str_cat(" on rank ", culprit, " (tp 0, pp 0, dp ", culprit, ")")
                                       : " after the sum over 2 data-parallel ranks (tp 0, pp 0)";
      EXPECT_NE(error.find(place), std::string::npos) << error;
    }
  }
}

TEST(Trainer, ANaNInAWeightEndsTheRunBeforeAnyUpdateAndNamesIt) {
  spec::RunSpec run = small_run(true);
  for (const Layout& layout : {Layout{}, Layout{1, 1, 2, false, 1}, Layout{2, 2, 1, false, 2}}) {
    SmallOptions options = sequences();
    options.hooks.after_step = [](RankParts& parts, const StepReport& report) {
      if (report.iteration != 1 || parts.mesh().rank != parts.mesh().world_size - 1) return;
      for (nn::Parameter* parameter : parts.model().parameters())
        if (parameter->name == "decoder.layers.1.mlp.linear_fc2.weight") parameter->value.data<float>()[3] = NAN;
    };
    const SmallResult result = train_small(complete(run, layout), options);
    EXPECT_EQ(result.outcome.reason, EndReason::not_finite);
    EXPECT_EQ(result.outcome.iteration, 1);
    EXPECT_NE(result.outcome.error.find("iteration 2"), std::string::npos) << result.outcome.error;
    EXPECT_NE(result.outcome.error.find("weight decoder.layers.1.mlp.linear_fc2.weight"), std::string::npos)
        << result.outcome.error;
    EXPECT_NE(result.outcome.error.find("rank " + std::to_string(layout.world() - 1)), std::string::npos)
        << result.outcome.error;
    EXPECT_NE(result.outcome.error.find("micro-batch"), std::string::npos) << result.outcome.error;
    // One element is not finite and no other: nothing was updated.
    std::int64_t bad = 0;
    for (const auto& [name, values] : result.weights)
      for (const float value : values) bad += std::isfinite(value) ? 0 : 1;
    EXPECT_EQ(bad, layout.dp == 2 ? 0 : 1);
    EXPECT_TRUE(result.steps.back().nan);
  }
}

TEST(Trainer, WithoutTheCheckAStepWithNaNIsCountedAndSkipped) {
  spec::RunSpec run = small_run(false);
  run.log.check_for_nan = false;
  run.batch.train_iters = 2;
  SmallOptions options = sequences();
  options.hooks.after_setup = [](RankParts& parts) {
    for (nn::Parameter* parameter : parts.model().parameters())
      if (parameter->name == "decoder.final_layernorm.weight") parameter->value.data<float>()[0] = NAN;
  };
  const SmallResult result = train_small(complete(run, {1, 1, 2, false, 2}), options);
  ASSERT_EQ(result.steps.size(), 2U);
  for (const StepReport& step : result.steps) {
    EXPECT_TRUE(step.nan);
    EXPECT_TRUE(step.skipped);
    EXPECT_TRUE(std::isnan(step.loss));
  }
  EXPECT_EQ(result.outcome.reason, EndReason::finished);
}

TEST(Trainer, ASignalEndsAllRanksAfterTheSameStep) {
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 50;
  std::atomic<int> flag{0};
  SmallOptions options = sequences();
  options.stop_signal = &flag;
  options.hooks.after_step = [&](RankParts& parts, const StepReport& report) {
    if (report.iteration == 3 && parts.mesh().rank == 0) flag = SIGTERM;
  };
  const SmallResult result = train_small(complete(run, {2, 1, 2, false, 1}), options);
  EXPECT_EQ(result.outcome.reason, EndReason::signal);
  EXPECT_EQ(result.outcome.signal, SIGTERM);
  EXPECT_GE(result.outcome.iteration, 4);
  EXPECT_LE(result.outcome.iteration, 5);
}

TEST(Trainer, ASignalDuringEvaluationEndsTheRun) {
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 50;
  run.batch.eval_interval = 2;
  run.batch.eval_iters = 1000000;
  std::atomic<int> flag{0};
  SmallOptions options = sequences();
  options.valid = make_sequences(64, 16, 61);
  options.stop_signal = &flag;
  options.hooks.after_step = [&](RankParts& parts, const StepReport& report) {
    if (report.iteration == 2 && parts.mesh().rank == 0) flag = SIGINT;
  };
  const SmallResult result = train_small(complete(run, {1, 2, 1, false, 1}), options);
  EXPECT_EQ(result.outcome.reason, EndReason::signal);
  EXPECT_EQ(result.outcome.signal, SIGINT);
  EXPECT_EQ(result.outcome.iteration, 2);
  EXPECT_TRUE(result.evaluations.empty());
}

TEST(Trainer, ExitIntervalEndsTheRun) {
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 50;
  run.batch.exit_interval = 4;
  const SmallResult result = train_small(complete(run, {}), sequences());
  EXPECT_EQ(result.outcome.reason, EndReason::exit_interval);
  EXPECT_EQ(result.outcome.iteration, 4);
}

TEST(Trainer, ExitDurationEndsAllRanksTogether) {
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 50;
  run.batch.exit_duration_minutes = 0.0;
  const SmallResult result = train_small(complete(run, {1, 1, 2, false, 1}), sequences());
  EXPECT_EQ(result.outcome.reason, EndReason::exit_duration);
  EXPECT_EQ(result.outcome.iteration, 1);
}

TEST(Trainer, SkipTrainOnlyEvaluates) {
  spec::RunSpec run = small_run(false);
  run.batch.skip_train = true;
  run.batch.eval_iters = 2;
  run.optimizer.lr.reset();
  SmallOptions options;
  options.valid = options.test = make_sequences(64, 16, 61);
  const SmallResult result = train_small(complete(run, {1, 2, 1, false, 1}), options);
  EXPECT_TRUE(result.steps.empty());
  ASSERT_EQ(result.evaluations.size(), 2U);
  EXPECT_EQ(result.evaluations[0].suffix, " on validation set");
  EXPECT_EQ(result.evaluations[1].suffix, " on test set");
  EXPECT_NEAR(result.evaluations[0].loss, std::log(61.0), 0.1);
}

// /proc takes no files and has no room: the run ends before its first step, naming the folder.
TEST(Trainer, WithoutRoomForACheckpointTheRunEndsBeforeTheFirstStep) {
  for (const Layout& layout : {Layout{}, Layout{2, 1, 1, false, 1}}) {
    spec::RunSpec run = small_run(false);
    run.checkpoint.save = "/proc/self/checkpoints";
    SmallOptions options = sequences();
    std::atomic<int> steps{0};
    options.hooks.after_step = [&](RankParts&, const StepReport&) { ++steps; };
    try {
      train_small(complete(run, layout), options);
      ADD_FAILURE() << "accepted";
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find("/proc/"), std::string::npos) << error.what();
    }
    EXPECT_EQ(steps, 0);
  }
}

TEST(Trainer, TheLearningRateOfAnUpdateIsThatOfTheSamplesBefore) {
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 10;
  run.optimizer.lr = 2e-3;
  run.optimizer.min_lr = 2e-4;
  run.optimizer.lr_warmup_iters = 2;
  run.optimizer.lr_decay_style = spec::DecayStyle::cosine;
  const SmallResult result = train_small(complete(run, {}), sequences());
  const double pi = std::acos(-1.0);
  for (int k = 0; k < 10; ++k) {
    const double expected = k <= 2 ? 2e-3 * k / 2 : 2e-4 + 1.8e-3 * 0.5 * (1 + std::cos(pi * (k - 2) / 8.0));
    EXPECT_NEAR(result.steps[static_cast<std::size_t>(k)].lr, expected, 1e-12) << k;
  }
}

}  // namespace
}  // namespace megatron::train
