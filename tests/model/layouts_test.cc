// The same numbers under every layout: tensor and sequence parallelism close, pipeline cuts and everything else that
// does not reorder a sum bitwise.
#include <gtest/gtest.h>

#include "support/grad_check.h"
#include "support/stage_fixture.h"

namespace megatron {
namespace {

using testing::WholeTensors;

/// 24 heads of size 8 so that every TP divides; three key/value groups; a vocabulary that nothing divides.
spec::ModelSpec wide_model(bool llama) {
  spec::ModelSpec model;
  model.num_layers = 2;
  model.hidden_size = 32;
  model.num_attention_heads = 24;
  model.kv_channels = 8;
  model.ffn_hidden_size = 48;
  model.seq_length = 12;
  model.vocab_size = 61;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  model.init_method_std = 0.2;
  if (!llama) return model;
  model.normalization = spec::Normalization::rms_norm;
  model.position_embedding = spec::PositionEmbedding::rope;
  model.activation = spec::Activation::silu;
  model.gated_linear_unit = true;
  model.add_bias_linear = false;
  model.qk_layernorm = true;
  model.untie_embeddings_and_output_weights = true;
  return model;
}

struct Outcome {
  std::vector<std::vector<double>> losses;
  WholeTensors gradients;
};

struct Choices {
  bool deferred = false;
  int threads = 1;
  std::uint64_t perturb_seed = 0;
  DType dtype = DType::float32;
  nn::Mode mode = nn::Mode::train;
};

Outcome run_layout(const spec::ModelSpec& model, int tp, int pp, bool sequence_parallel, const Choices& choices = {}) {
  const spec::RunSpec run = testing::make_run(model, testing::make_parallel(tp, pp, 1, sequence_parallel));
  Outcome outcome;
  testing::Gatherer gatherer;
  std::mutex mutex;
  testing::run_mesh(
      run.parallel,
      [&](mesh::Rank& rank) {
        auto built = model::build_model(rank, run, choices.dtype);
        model::Stage* const stage = &built->chunk(0);
        model::initialize_parameters(rank, stage->parameters(), 1234);
        testing::allocate_gradients(rank.exec, stage->parameters());
        std::vector<nn::MicroBatch> batches;
        for (std::int64_t i = 0; i < 3; ++i) {
          batches.push_back(testing::make_batch(1, 2 * i, 2, model.seq_length, model.vocab_size));
          batches.back().index = i;
          testing::place_batch(batches.back(), rank, sequence_parallel);
        }
        testing::StepOptions options;
        options.mode = choices.mode;
        options.backward = choices.mode == nn::Mode::train;
        options.deferred_weight_grads = choices.deferred;
        const auto losses = testing::run_stage_step(rank, *stage, run, batches, options, choices.dtype);
        gatherer.add_gradients(*stage);
        if (!rank.mesh.holds_last_stage()) return;
        const std::scoped_lock lock(mutex);
        if (!outcome.losses.empty()) {
          EXPECT_EQ(outcome.losses, losses) << "tensor-parallel ranks differ";
        }
        outcome.losses = losses;
      },
      choices.threads, choices.perturb_seed);
  outcome.gradients = std::move(gatherer.tensors);
  return outcome;
}

void expect_close(const Outcome& got, const Outcome& want, double loss_tolerance, double gradient_tolerance) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_LE(testing::relative_max_error(got.losses[i], want.losses[i]), loss_tolerance);
  double largest = 0;
  for (const auto& [name, gradient] : want.gradients) largest = std::max(largest, testing::norm_of(gradient));
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (const auto& [name, gradient] : want.gradients) {
    std::vector<double> difference = got.gradients.at(name);
    ASSERT_EQ(difference.size(), gradient.size()) << name;
    for (std::size_t i = 0; i < gradient.size(); ++i) difference[i] -= gradient[i];
    // Relative to the tensor; where a true gradient is zero (key biases), to 1e-3 of the largest tensor.
    const double scale = testing::norm_of(gradient) + 1e-3 * largest;
    EXPECT_LE(testing::norm_of(difference), gradient_tolerance * scale) << name;
  }
}

void expect_equal(const Outcome& got, const Outcome& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.gradients, want.gradients);
}

class Layouts : public ::testing::TestWithParam<std::tuple<bool, int>> {
 protected:
  spec::ModelSpec model() const {
    spec::ModelSpec model = wide_model(std::get<0>(GetParam()));
    model.num_query_groups = std::get<1>(GetParam());
    return model;
  }
};

// TP 1, 2, 3, 4, 8 with 1, 2, 3 and 24 key/value groups, wherever one of groups and ranks divides the other.
TEST_P(Layouts, TensorAndSequenceParallelismAgree) {
  const spec::ModelSpec m = model();
  const Outcome want = run_layout(m, 1, 1, false);
  Choices exact;
  exact.dtype = DType::float64;
  const Outcome want_exact = run_layout(m, 1, 1, false, exact);
  for (const int tp : {2, 3, 4, 8})
    for (const bool sequence_parallel : {false, true}) {
      if (m.num_query_groups % tp != 0 && tp % m.num_query_groups != 0) continue;
      SCOPED_TRACE(str_cat("tp ", tp, sequence_parallel ? " with sequence parallelism" : ""));
      expect_close(run_layout(m, tp, 1, sequence_parallel), want, 2e-6, 1e-5);
      // In double the same comparison leaves no room for a wrong sum.
      expect_close(run_layout(m, tp, 1, sequence_parallel, exact), want_exact, 1e-13, 1e-12);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Layouts, ::testing::Combine(::testing::Bool(), ::testing::Values(1, 2, 3, 24)));

class Bits : public ::testing::TestWithParam<bool> {};

TEST_P(Bits, PipelineCutsChangeNothing) {
  const spec::ModelSpec m = wide_model(GetParam());
  expect_equal(run_layout(m, 1, 2, false), run_layout(m, 1, 1, false));
  expect_equal(run_layout(m, 2, 2, true), run_layout(m, 2, 1, true));
}

TEST_P(Bits, ThreadsDeferralAndTimingChangeNothing) {
  const spec::ModelSpec m = wide_model(GetParam());
  const Outcome want = run_layout(m, 2, 1, true);
  Choices choices;
  choices.deferred = true;
  expect_equal(run_layout(m, 2, 1, true, choices), want);
  choices.threads = 3;
  expect_equal(run_layout(m, 2, 1, true, choices), want);
  choices.perturb_seed = 99;
  expect_equal(run_layout(m, 2, 1, true, choices), want);
}

TEST_P(Bits, DropoutIsOffInEvaluation) {
  spec::ModelSpec m = wide_model(GetParam());
  Choices evaluate;
  evaluate.mode = nn::Mode::evaluate;
  const Outcome with = run_layout(m, 2, 1, true, evaluate);
  EXPECT_NE(with.losses, run_layout(m, 2, 1, true).losses);
  m.hidden_dropout = m.attention_dropout = 0.0;
  EXPECT_EQ(with.losses, run_layout(m, 2, 1, true).losses);
}

INSTANTIATE_TEST_SUITE_P(Models, Bits, ::testing::Bool());

}  // namespace
}  // namespace megatron
