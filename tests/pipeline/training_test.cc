// Pipelines of the real model: what the cut into stages, the schedule and the order of work must not change.
#include <gtest/gtest.h>

#include "base/check.h"
#include "stage_training.h"

namespace megatron::pipeline {
namespace {

using testing::make_parallel;

void expect_same_bits(const TrainingResult& a, const TrainingResult& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.grad_norms, b.grad_norms);
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, values] : b.weights) EXPECT_EQ(a.weights.at(name), values) << name;
}

/// Weights that differ by less than `tolerance` of the largest of their tensor. Left out are biases of key norms: the
/// softmax cancels them, so their exact gradient is 0.
void expect_close(const TrainingResult& a, const TrainingResult& b, double tolerance) {
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, values] : b.weights) {
    if (name.find("k_layernorm.bias") != std::string::npos) continue;
    EXPECT_LT(testing::relative_max_error(a.weights.at(name), values), tolerance) << name;
  }
}

TrainingCase case_of(bool llama, bool tied) {
  TrainingCase c;
  c.model = tiny_model(llama, tied);
  return c;
}

class Models : public ::testing::TestWithParam<std::pair<bool, bool>> {};

TEST_P(Models, StagesAndSchedulesGiveTheBitsOfOneStage) {
  TrainingCase c = case_of(GetParam().first, GetParam().second);
  for (const std::int64_t m : {1, 2, 3, 5}) {
    c.global_batch = m;
    c.parallel = make_parallel(1);
    const TrainingResult one = train(c);
    ASSERT_EQ(one.losses.size(), 3U);
    for (const int stages : {2, 4})
      for (const auto kind : {spec::PipelineSchedule::one_f_one_b, spec::PipelineSchedule::gpipe,
                              spec::PipelineSchedule::zb_h1, spec::PipelineSchedule::zb_h2}) {
        SCOPED_TRACE(str_cat(stages, " stages, ", m, " micro-batches"));
        c.parallel = make_parallel(1, stages);
        c.parallel.schedule = kind;
        expect_same_bits(train(c), one);
      }
  }
}

TEST_P(Models, PipelineWithTensorAndDataParallelism) {
  TrainingCase c = case_of(GetParam().first, GetParam().second);
  c.global_batch = 8;
  c.perturb_seed = 5;
  for (const bool sequence_parallel : {false, true}) {
    c.parallel = make_parallel(2, 1, 2, sequence_parallel);
    const TrainingResult one = train(c);
    c.parallel = make_parallel(2, 2, 2, sequence_parallel);
    const TrainingResult two = train(c);
    expect_same_bits(two, one);
    EXPECT_EQ(two.table, two.head);
  }
}

TEST_P(Models, WeightGradientsOfTheirOwn) {
  TrainingCase c = case_of(GetParam().first, GetParam().second);
  c.parallel = make_parallel(1, 2);
  const TrainingResult together = train(c);
  c.split_backward = true;
  expect_same_bits(train(c), together);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Models,
                         ::testing::Values(std::pair{false, true}, std::pair{false, false}, std::pair{true, true},
                                           std::pair{true, false}),
                         [](const auto& kind) {
                           return str_cat(kind.param.first ? "Llama" : "Gpt2", kind.param.second ? "Tied" : "Untied");
                         });

/// Both copies of a tied table stay equal, and equal to the one of a single stage.
TEST(Training, TiedCopiesStayEqual) {
  for (const bool llama : {false, true}) {
    TrainingCase c = case_of(llama, true);
    const TrainingResult one = train(c);
    c.parallel = make_parallel(1, 2);
    const TrainingResult two = train(c);
    ASSERT_FALSE(two.table.empty());
    EXPECT_EQ(two.table, two.head);
    EXPECT_EQ(two.table, one.table);
  }
}

/// SGD at rate 1 without clipping shows a gradient that is scaled once too often; Adam would hide it.
TEST(Training, GradientsAreScaledOnce) {
  TrainingCase c = case_of(false, false);
  c.optimizer.kind = spec::OptimizerKind::sgd;
  c.optimizer.sgd_momentum = 0;
  c.optimizer.clip_grad = 0;
  c.lr = 1.0;
  c.steps = 1;
  const TrainingResult one = train(c);
  for (const int stages : {2, 4}) {
    c.parallel = make_parallel(1, stages);
    const TrainingResult many = train(c);
    expect_same_bits(many, one);
    EXPECT_NEAR(many.grad_norms[0], one.grad_norms[0], 1e-5 * one.grad_norms[0]);
  }
}

/// The same samples in micro-batches of another size, or on more ranks: the same gradient per token, although the
/// sequences train 1, 3, 0 and 8 tokens.
TEST(Training, MicroBatchSizeDoesNotMatter) {
  for (const auto kind : {spec::OptimizerKind::sgd, spec::OptimizerKind::adam}) {
    TrainingCase c = case_of(true, true);
    c.optimizer.kind = kind;
    c.optimizer.adam_eps = 1e-4;  // so that no update is the sign of rounding noise
    c.mask = [](std::int64_t sample, std::int64_t length) {
      std::vector<float> mask(static_cast<std::size_t>(length), 0.0F);
      const std::size_t trained[] = {1, 3, 0, 8};
      std::fill_n(mask.begin(), trained[sample % 4], 1.0F);
      return mask;
    };
    const TrainingResult reference = train(c);
    const auto expect_equal = [&](std::int64_t micro_batch, int pp, int dp) {
      SCOPED_TRACE(str_cat("micro-batch ", micro_batch, " pp ", pp, " dp ", dp));
      TrainingCase other = c;
      other.micro_batch = micro_batch;
      other.parallel = make_parallel(1, pp, dp);
      const TrainingResult result = train(other);
      for (std::size_t i = 0; i < reference.losses.size(); ++i) {
        EXPECT_NEAR(result.losses[i], reference.losses[i], 1e-6 * reference.losses[i]);
        EXPECT_NEAR(result.grad_norms[i], reference.grad_norms[i], 1e-5 * reference.grad_norms[i]);
      }
      expect_close(result, reference, 1e-6);
    };
    expect_equal(2, 1, 1);
    expect_equal(4, 1, 1);
    expect_equal(1, 1, 2);
    expect_equal(2, 1, 2);
    expect_equal(1, 2, 2);
    expect_equal(1, 1, 4);
  }
}

/// The parts of a gradient that tensor-parallel ranks hold are all summed, each once: also key and value rows that two
/// ranks share (Llama kind, 2 groups on 4 ranks), q/k norms and what sequence parallelism cuts along the tokens. In
/// double, where rounding hides nothing.
TEST(Training, TensorParallelAgreesWithOneRank) {
  for (const bool llama : {false, true}) {
    TrainingCase c = case_of(llama, true);
    c.model.qk_layernorm = true;
    c.dtype = DType::float64;
    c.optimizer.adam_eps = 1e-4;
    const TrainingResult one = train(c);
    const auto expect_equal = [&](int tp, int pp, int dp, bool sequence_parallel) {
      SCOPED_TRACE(str_cat(llama ? "llama" : "gpt2", " tp ", tp, " pp ", pp, " dp ", dp, " sp ", sequence_parallel));
      TrainingCase other = c;
      other.parallel = make_parallel(tp, pp, dp, sequence_parallel);
      const TrainingResult result = train(other);
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(result.losses[i], one.losses[i], 1e-13 * one.losses[i]);
        EXPECT_NEAR(result.grad_norms[i], one.grad_norms[i], 1e-12 * one.grad_norms[i]);
      }
      expect_close(result, one, 1e-11);
    };
    expect_equal(2, 1, 1, false);
    expect_equal(2, 1, 1, true);
    expect_equal(4, 1, 1, false);
    expect_equal(4, 2, 1, true);
    expect_equal(2, 2, 2, true);
  }
}

/// More stages than micro-batches, and stages without layers.
TEST(Training, FewMicroBatchesAndEmptyStages) {
  TrainingCase c = case_of(true, true);
  c.model.num_layers = 2;
  c.global_batch = 2;
  const TrainingResult one = train(c);
  c.parallel = make_parallel(1, 4);
  expect_same_bits(train(c), one);
}

/// Dropout is a function of the position: stages and schedules do not change it.
TEST(Training, DropoutDoesNotDependOnStages) {
  TrainingCase c = case_of(false, true);
  c.model.hidden_dropout = c.model.attention_dropout = 0.0;
  const TrainingResult without = train(c);
  c.model.hidden_dropout = c.model.attention_dropout = 0.3;
  const TrainingResult one = train(c);
  EXPECT_NE(one.losses, without.losses);
  c.parallel = make_parallel(1, 4);
  expect_same_bits(train(c), one);
}

}  // namespace
}  // namespace megatron::pipeline
