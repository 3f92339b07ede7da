// What users of other programs reported about layouts and numbers, as runs of ours.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "support/temporary_folder.h"
#include "training_case.h"

namespace megatron::parity {
namespace {

using testing::complete;
using testing::Layout;
using testing::layout_text;
using testing::make_sequences;
using testing::relative_rms;
using testing::small_run;
using testing::SmallOptions;
using testing::SmallResult;
using testing::train_small;

// "Validation loss depends on the micro-batch size or is divided by the number of accumulated micro-batches": with a
// learning rate of 0 the validation on the samples of the first step is the loss of that step.
TEST(UserReports, ValidationLossIsThatOfTheTokens) {
  spec::RunSpec run = small_run(false);
  run.optimizer.lr = 0.0;
  run.batch.train_iters = 1;
  run.batch.eval_iters = 1;
  run.batch.eval_interval = 1;
  SmallOptions options;
  options.train = options.valid = make_sequences(
      8, 16, 61, [](std::int64_t sample, std::int64_t place) { return place <= 2 * sample % 13 ? 1.0F : 0.0F; });
  std::vector<double> losses;
  for (const Layout& layout :
       {Layout{1, 1, 1, false, 1}, Layout{1, 1, 1, false, 2}, Layout{1, 1, 1, false, 8}, Layout{1, 2, 2, false, 1}}) {
    SCOPED_TRACE(layout_text(layout));
    const SmallResult result = train_small(complete(run, layout), options);
    ASSERT_FALSE(result.evaluations.empty());
    EXPECT_NEAR(result.evaluations[0].loss / result.steps[0].loss, 1.0, 1e-6);
    EXPECT_EQ(result.evaluations[0].trained_tokens, result.steps[0].trained_tokens);
    losses.push_back(result.evaluations[0].loss);
  }
  for (const double loss : losses) EXPECT_NEAR(loss / losses[0], 1.0, 1e-6);
}

// "A vocabulary that tensor parallelism does not divide changes the loss": the padding is another one at each size
// (40, 48), and none of it enters the softmax.
TEST(UserReports, FirstLossOfZeroWeightsIsTheLogarithmOfTheVocabulary) {
  spec::RunSpec run = small_run(true);
  run.model.vocab_size = 37;
  run.model.make_vocab_size_divisible_by = 8;
  run.batch.train_iters = 1;
  SmallOptions options;
  options.train = make_sequences(16, 16, 37);
  options.initial["output_layer.weight"] = std::vector<float>(37 * 32, 0.0F);
  for (const int tp : {1, 2, 4}) {
    const spec::RunSpec whole = complete(run, {tp, 1, 1, false, 4});
    EXPECT_EQ(whole.model.padded_vocab_size, tp == 1 ? 40 : tp == 2 ? 48 : 64);
    EXPECT_NEAR(train_small(whole, options).steps[0].loss, 3.610918, 1e-6) << "tp " << tp;
  }
}

/// Values of the parameters whose name contains `part`, as each tensor-parallel rank holds them.
using Copies = std::map<std::string, std::vector<std::vector<float>>>;

// "With sequence parallelism the norms of the ranks drift apart": each rank's gradient covers its tokens only.
TEST(UserReports, NormsStayEqualUnderSequenceParallelism) {
  for (const bool llama : {false, true}) {
    spec::RunSpec run = small_run(llama);
    run.model.qk_layernorm = true;
    run.batch.train_iters = 5;
    SmallOptions options;
    options.train = make_sequences(64, 16, 61);
    const SmallResult one = train_small(complete(run, {1, 1, 1, false, 2}), options);
    std::mutex mutex;
    Copies copies;
    options.hooks.at_end = [&](train::RankParts& parts) {
      const std::lock_guard<std::mutex> lock(mutex);
      for (const nn::Parameter* parameter : parts.model().parameters())
        if (parameter->name.find("layernorm") != std::string::npos) {
          const auto* values = std::as_const(parameter->value).data<float>();
          copies[parameter->name].emplace_back(values, values + parameter->value.numel());
        }
    };
    train_small(complete(run, {2, 1, 1, true, 2}), options);
    EXPECT_GE(copies.size(), 9U);
    for (const auto& [name, ranks] : copies) {
      ASSERT_EQ(ranks.size(), 2U) << name;
      EXPECT_EQ(ranks[0], ranks[1]) << name;
      // It has moved, and to where one rank brings it. A bias of the keys' norm has the exact gradient 0.
      const bool weight = name.find(".weight") != std::string::npos;
      EXPECT_NE(ranks[0], std::vector<float>(ranks[0].size(), weight ? 1.0F : 0.0F)) << name;
      if (name.find("k_layernorm.bias") == std::string::npos) {
        EXPECT_LE(relative_rms(ranks[0], one.weights.at(name)), 1e-5) << name;
      }
    }
  }
}

// "The loss mask is not cut like the activations": padding at the end of each sequence, so that under sequence
// parallelism whole ranks hold padding and nothing else.
TEST(UserReports, PaddingUnderSequenceParallelism) {
  spec::RunSpec run = small_run(true);
  run.optimizer.kind = spec::OptimizerKind::sgd;
  run.optimizer.lr = 0.1;
  SmallOptions options;
  options.train = make_sequences(
      64, 16, 61, [](std::int64_t sample, std::int64_t place) { return place < 3 + sample % 4 ? 1.0F : 0.0F; });
  const SmallResult one = train_small(complete(run, {1, 1, 1, false, 1}), options);
  for (const Layout& layout : {Layout{2, 1, 1, true, 1}, Layout{4, 1, 2, true, 1}}) {
    SCOPED_TRACE(layout_text(layout));
    const SmallResult other = train_small(complete(run, layout), options);
    // 3, 4, 5 and 6 trained tokens, twice.
    EXPECT_EQ(other.steps[0].trained_tokens, 36);
    const auto found = differences(other, one, run.model, Level::close);
    EXPECT_TRUE(found.empty()) << joined(found);
  }
}

// "The size of initial weights grows with tensor parallelism, and nobody can tell a bug from noise": weights depend on
// the seed and their place in the whole tensor only, so they are the same bits, and shards are not copies of each
// other.
TEST(UserReports, InitialWeightsDependOnTheSeedOnly) {
  spec::RunSpec run = small_run(true);
  run.batch.train_iters = 0;
  SmallOptions options;
  options.train = make_sequences(64, 16, 61);
  const SmallResult one = train_small(complete(run, {}), options);
  for (const Layout& layout : {Layout{2, 1, 1, false, 1}, Layout{1, 2, 1, false, 1}, Layout{4, 2, 1, true, 1}})
    EXPECT_EQ(train_small(complete(run, layout), options).weights, one.weights) << layout_text(layout);
  const std::vector<float>& fc2 = one.weights.at("decoder.layers.0.mlp.linear_fc2.weight");
  const auto row = [&](std::ptrdiff_t begin) {
    return std::vector<float>(fc2.begin() + begin, fc2.begin() + begin + 24);
  };
  EXPECT_NE(row(0), row(24));  // the shards of two ranks
}

// "Deterministic mode does not reproduce": two runs on four ranks, under another timing, write the same numbers and the
// same files.
TEST(UserReports, TwoRunsAreTheSameRun) {
  spec::RunSpec run = small_run(false);
  run.model.hidden_dropout = run.model.attention_dropout = 0.1;
  run.batch.train_iters = 10;
  const testing::TemporaryFolder a, b;
  SmallOptions options;
  options.train = make_sequences(128, 16, 61, uneven_mask);
  run.checkpoint.save = a.path();
  const SmallResult first = train_small(complete(run, {2, 1, 2, true, 1}), options);
  run.checkpoint.save = b.path();
  options.perturb_seed = 17;
  const SmallResult second = train_small(complete(run, {2, 1, 2, true, 1}), options);
  const auto found = differences(second, first, run.model, Level::bits);
  EXPECT_TRUE(found.empty()) << joined(found);
  const auto files = testing::folder_bytes(a.path());
  EXPECT_GE(files.size(), 4U);
  EXPECT_EQ(files, testing::folder_bytes(b.path()));
}

}  // namespace
}  // namespace megatron::parity
