#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "model/build.h"
#include "support/run_ranks.h"
#include "support/small_run.h"

namespace megatron::train {
namespace {

using megatron::testing::complete;
using megatron::testing::Layout;
using megatron::testing::layout_text;
using megatron::testing::make_sequences;
using megatron::testing::run_ranks;
using megatron::testing::small_run;

EvaluationResult evaluate_fresh(spec::RunSpec run, const Layout& layout, const data::Dataset& dataset,
                                const EvaluationPlan& plan, std::vector<float>* losses = nullptr) {
  run = complete(run, layout);
  EvaluationResult result;
  std::mutex mutex;
  run_ranks(layout.world(), [&](comm::RankContext& context) {
    RankParts parts(context, run, RankParts::Use::training);
    model::initialize_parameters(parts.rank(), parts.model().parameters(), 1234);
    if (losses != nullptr)
      parts.engine().set_loss_observer([&](std::int64_t, const Tensor& tokens) {
        losses->insert(losses->end(), tokens.data<float>(), tokens.data<float>() + tokens.numel());
      });
    const EvaluationResult mine = evaluate(parts, dataset, plan, nullptr);
    const std::lock_guard<std::mutex> lock(mutex);
    result = mine;
  });
  return result;
}

TEST(Evaluate, OneNumberForEveryBatchSizeAndLayout) {
  const auto dataset =
      make_sequences(8, 16, 61, [](std::int64_t s, std::int64_t i) { return i < 2 * (s + 1) ? 1.0F : 0.0F; });
  spec::RunSpec run = small_run(false);
  run.batch.global_batch_size = 8;
  const EvaluationResult one = evaluate_fresh(run, {}, *dataset, {0, 8, 8, 1});
  EXPECT_EQ(one.trained_tokens, 72);
  for (const Layout& layout : {Layout{}, Layout{2, 1, 1, true, 1}, Layout{1, 2, 1, false, 1}, Layout{1, 1, 4, false, 1},
                               Layout{2, 2, 2, false, 1}}) {
    for (const std::int64_t micro_batch : {1, 2}) {
      SCOPED_TRACE(layout_text(layout));
      const EvaluationResult other = evaluate_fresh(run, layout, *dataset, {0, 8, 8, micro_batch});
      EXPECT_NEAR(other.loss / one.loss, 1.0, 1e-6);
      EXPECT_EQ(other.trained_tokens, 72);
    }
  }
}

// 5 sequences with 8, 8, 8, 8 and 2 trained tokens: Σ loss / 34 whatever the batch.
TEST(Evaluate, AShortLastBatchCountsItsTokensOnly) {
  const auto dataset =
      make_sequences(5, 16, 61, [](std::int64_t s, std::int64_t i) { return i < (s == 4 ? 2 : 8) ? 1.0F : 0.0F; });
  std::vector<float> losses;
  const EvaluationResult whole = evaluate_fresh(small_run(true), {}, *dataset, {0, 5, 1, 1}, &losses);
  double sum = 0.0;
  for (std::int64_t s = 0; s < 5; ++s)
    for (std::int64_t i = 0; i < (s == 4 ? 2 : 8); ++i) sum += losses[static_cast<std::size_t>(s * 16 + i)];
  EXPECT_NEAR(whole.loss, sum / 34.0, 1e-6);
  for (const std::int64_t batch : {2, 5}) {
    const EvaluationResult other = evaluate_fresh(small_run(true), {}, *dataset, {0, 5, batch, batch});
    EXPECT_EQ(other.trained_tokens, 34);
    EXPECT_EQ(other.samples, 5);
    EXPECT_NEAR(other.loss, sum / 34.0, 1e-6);
  }
  const EvaluationResult ranks = evaluate_fresh(small_run(true), {1, 1, 2, false, 1}, *dataset, {0, 5, 4, 2});
  EXPECT_NEAR(ranks.loss, sum / 34.0, 1e-6);
}

// No token counts: there is no loss, and 0 would be a wrong one.
TEST(Evaluate, AllMaskedIsNotALossOfZero) {
  const auto dataset = make_sequences(4, 16, 61, [](std::int64_t, std::int64_t) { return 0.0F; });
  const EvaluationResult result = evaluate_fresh(small_run(false), {}, *dataset, {0, 4, 2, 1});
  EXPECT_EQ(result.trained_tokens, 0);
  EXPECT_TRUE(std::isnan(result.loss)) << result.loss;
}

// Each data-parallel rank reads samples of its own: the result is the mean over all of them.
TEST(Evaluate, EveryRankOfDataParallelismCounts) {
  const auto dataset = make_sequences(4, 16, 61);
  std::vector<double> alone;
  for (std::int64_t s = 0; s < 4; ++s)
    alone.push_back(evaluate_fresh(small_run(false), {}, *dataset, {s, 1, 1, 1}).loss);
  EXPECT_NE(alone[0], alone[1]);
  const EvaluationResult all = evaluate_fresh(small_run(false), {1, 1, 4, false, 1}, *dataset, {0, 4, 4, 1});
  EXPECT_NEAR(all.loss, (alone[0] + alone[1] + alone[2] + alone[3]) / 4.0, 1e-6);
}

TEST(Evaluate, SamplesWrapAtTheEndOfTheData) {
  const auto dataset = make_sequences(3, 16, 61);
  const double direct = evaluate_fresh(small_run(false), {}, *dataset, {0, 3, 3, 1}).loss;
  EXPECT_NEAR(evaluate_fresh(small_run(false), {}, *dataset, {6, 3, 3, 1}).loss, direct, 1e-12);
}

}  // namespace
}  // namespace megatron::train
