#include "infer/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "model/build.h"
#include "support/run_ranks.h"
#include "support/small_run.h"

namespace megatron::infer {
namespace {

using megatron::testing::complete;
using megatron::testing::Layout;
using megatron::testing::layout_text;
using megatron::testing::make_sequences;
using megatron::testing::run_ranks;
using megatron::testing::set_weights;
using megatron::testing::small_run;
using megatron::testing::SmallOptions;
using megatron::testing::train_small;
using megatron::testing::Weights;

using Ids = std::vector<std::int64_t>;

Ids generate_with(spec::RunSpec run, const Layout& layout, const Weights& weights, const Ids& prompt,
                  const GenerateOptions& options) {
  run = complete(run, layout);
  Ids ids;
  std::mutex mutex;
  run_ranks(layout.world(), [&](comm::RankContext& context) {
    train::RankParts parts(context, run, train::RankParts::Use::inference);
    model::initialize_parameters(parts.rank(), parts.model().parameters(), 1234);
    set_weights(parts, weights);
    Ids heard;
    const Ids mine =
        generate(parts.rank(), parts.model(), run, prompt, options, [&](std::int64_t id) { heard.push_back(id); });
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_EQ(mine, heard);
    if (!ids.empty()) {
      EXPECT_EQ(mine, ids);
    }
    ids = mine;
  });
  return ids;
}

/// The most likely continuation by running the whole text again for every token, without a cache.
Ids greedy_without_cache(spec::RunSpec run, const Weights& weights, Ids text, std::int64_t count) {
  run = complete(run, {});
  const std::size_t prompt = text.size();
  run_ranks(1, [&](comm::RankContext& context) {
    train::RankParts parts(context, run, train::RankParts::Use::inference);
    set_weights(parts, weights);
    for (std::int64_t n = 0; n < count; ++n) {
      nn::MicroBatch batch;
      batch.num_tokens = static_cast<std::int64_t>(text.size());
      batch.ids = text;
      batch.labels.assign(text.size(), 0);
      batch.loss_mask.assign(text.size(), 0.0F);
      batch.sequence_starts = {0, batch.num_tokens};
      batch.tokens.sample_index.assign(text.size(), 0);
      for (std::size_t i = 0; i < text.size(); ++i) batch.tokens.position.push_back(static_cast<std::int64_t>(i));
      nn::set_token_shard(batch, 0, 1);
      nn::WeightGradQueue queue(parts.exec(), nullptr);
      nn::Pass pass{parts.rank(), parts.exec(), batch, nn::Mode::evaluate, false, queue};
      const Tensor logits =
          parts.model().chunk(0).forward_logits(pass, Tensor(), batch.num_tokens - 1, batch.num_tokens);
      const auto* begin = logits.data<float>();
      text.push_back(std::max_element(begin, begin + run.model.vocab_size) - begin);
    }
  });
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt), text.end()};
}

Weights trained(bool llama) {
  spec::RunSpec run = small_run(llama);
  run.batch.train_iters = 12;
  run.optimizer.lr = 1e-2;
  SmallOptions options;
  options.train = make_sequences(128, 16, 61);
  return train_small(complete(run, {}), options).weights;
}

TEST(Generate, CachedStepsEqualRunningTheWholeTextAgain) {
  for (const bool llama : {false, true}) {
    const Weights weights = trained(llama);
    const Ids prompt = {5, 3, 17, 2};
    GenerateOptions options;
    options.sampling.temperature = 0.0;
    options.num_tokens = 10;
    EXPECT_EQ(generate_with(small_run(llama), {}, weights, prompt, options),
              greedy_without_cache(small_run(llama), weights, prompt, 10));
  }
}

TEST(Generate, SameSeedSameTextUnderEveryLayout) {
  for (const bool llama : {false, true}) {
    const Weights weights = trained(llama);
    GenerateOptions options;
    options.num_tokens = 12;
    const Ids one = generate_with(small_run(llama), {}, weights, {1, 2, 3}, options);
    EXPECT_EQ(one.size(), 12U);
    for (const Layout& layout :
         {Layout{2, 1, 1, false, 1}, Layout{4, 1, 1, false, 1}, Layout{1, 2, 1, false, 1}, Layout{2, 2, 1, false, 1}}) {
      SCOPED_TRACE(layout_text(layout));
      EXPECT_EQ(generate_with(small_run(llama), layout, weights, {1, 2, 3}, options), one);
    }
    options.sampling.seed = 77;
    EXPECT_NE(generate_with(small_run(llama), {}, weights, {1, 2, 3}, options), one);
  }
}

// With all real logits at the same negative value, zeros of padded columns must not win.
TEST(Generate, PaddedIdsAreNeverPicked) {
  spec::RunSpec run = small_run(true);
  run.model.vocab_size = 37;
  run.model.make_vocab_size_divisible_by = 8;
  Weights weights;
  weights["output_layer.weight"] = std::vector<float>(37 * 32, 0.0F);
  weights["decoder.final_layernorm.weight"] = std::vector<float>(32, 0.0F);
  for (const Layout& layout : {Layout{}, Layout{2, 1, 1, false, 1}}) {
    GenerateOptions options;
    options.num_tokens = 8;
    for (const double temperature : {0.0, 1.0, 50.0}) {
      options.sampling.temperature = temperature;
      for (const std::int64_t id : generate_with(run, layout, weights, {1}, options)) EXPECT_LT(id, 37);
    }
  }
}

TEST(Generate, EndsAtTheEndOfDocumentAndWhenPositionsAreUsedUp) {
  const Weights weights = trained(false);
  GenerateOptions options;
  options.num_tokens = 100;
  const Ids all = generate_with(small_run(false), {}, weights, {1, 2}, options);
  EXPECT_EQ(all.size(), 14U);  // 16 positions
  options.eod = all[3];
  const auto first = std::find(all.begin(), all.end(), all[3]);
  EXPECT_EQ(generate_with(small_run(false), {}, weights, {1, 2}, options), Ids(all.begin(), first + 1));
}

TEST(Generate, APromptThatDoesNotFitIsRefusedWithBothNumbers) {
  const spec::RunSpec run = complete(small_run(false), {});
  try {
    check_prompt_length(17, run);
    FAIL() << "was accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("17"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("16"), std::string::npos);
  }
  EXPECT_THROW(check_prompt_length(0, run), ConfigError);
}

}  // namespace
}  // namespace megatron::infer
