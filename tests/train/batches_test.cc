#include "train/batches.h"

#include <gtest/gtest.h>

#include "support/small_run.h"

namespace megatron::train {
namespace {

using megatron::testing::complete;
using megatron::testing::Layout;
using megatron::testing::layout_text;
using megatron::testing::small_run;
using megatron::testing::SmallOptions;
using megatron::testing::SmallResult;
using megatron::testing::train_small;

constexpr std::int64_t kLength = 16, kDocument = 8;

/// Every sample is the same document twice; attention and position ids restart with the second one.
class TwiceTheSameDocument final : public data::Dataset {
 public:
  std::int64_t size() const override { return 64; }
  data::Sample get(std::int64_t index) const override {
    data::Sample sample;
    for (std::int64_t i = 0; i < kLength; ++i) {
      sample.tokens.push_back((7 * index + 3 * (i % kDocument)) % 61);
      sample.labels.push_back((sample.tokens.back() + 1) % 61);
      sample.position_ids.push_back(i % kDocument);
    }
    sample.loss_mask.assign(kLength, 1.0F);
    sample.sequence_starts = {0, kDocument, kLength};
    return sample;
  }
};

/// Losses of the tokens of one training step, sample after sample.
std::vector<float> token_losses(spec::RunSpec run, const Layout& layout) {
  run.batch.train_iters = 1;
  run.batch.global_batch_size = 2;
  std::vector<float> losses;
  SmallOptions options;
  options.train = std::make_shared<TwiceTheSameDocument>();
  options.hooks.after_setup = [&](RankParts& parts) {
    if (parts.mesh().rank != 0) return;
    parts.engine().set_loss_observer([&](std::int64_t, const Tensor& values) {
      losses.insert(losses.end(), values.data<float>(), values.data<float>() + values.numel());
    });
  };
  train_small(complete(run, layout), options);
  return losses;
}

int equal_rows(const std::vector<float>& losses) {
  int equal = 0;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (i % kLength < kDocument && losses[i] == losses[i + kDocument]) ++equal;
  return equal;
}

// Positions restart, randomness does not: the documents of a sample have masks of their own.
TEST(Batches, DocumentsOfOneSampleHaveDropoutMasksOfTheirOwn) {
  for (const bool llama : {false, true}) {
    for (const Layout& layout : {Layout{1, 1, 1, false, 2}, Layout{2, 1, 1, true, 1}}) {
      SCOPED_TRACE(layout_text(layout) + (llama ? " llama" : " gpt2"));
      spec::RunSpec run = small_run(llama);
      const std::vector<float> plain = token_losses(run, layout);
      ASSERT_EQ(plain.size(), 2U * kLength);
      EXPECT_EQ(equal_rows(plain), 2 * kDocument);
      run.model.hidden_dropout = 0.2;
      EXPECT_EQ(equal_rows(token_losses(run, layout)), 0);
      run.model.hidden_dropout = 0.0;
      run.model.attention_dropout = 0.5;
      // The first row of a document sees one key, which is dropped or not in both.
      EXPECT_LE(equal_rows(token_losses(run, layout)), 4);
    }
  }
}

TEST(Batches, RowsKeepPositionAndPlaceInTheirShard) {
  data::Batch batch;
  batch.num_samples = 1;
  batch.seq_length = 6;
  batch.position_ids = {0, 1, 2, 0, 1, 2};
  batch.row_position = {0, 1, 2, 3, 4, 5};
  batch.sample_index.assign(6, 9);
  batch.sequence_starts = {0, 3, 6};
  const nn::MicroBatch micro = to_micro_batch(std::move(batch), 0, mesh::Mesh(), false);
  EXPECT_EQ(micro.tokens.position, (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(micro.tokens.place_in_sample(), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
  const nn::TokenMap shard = micro.tokens.slice(2, 5);
  EXPECT_EQ(shard.position, (std::vector<std::int64_t>{2, 0, 1}));
  EXPECT_EQ(shard.place_in_sample(), (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(shard.sample_index, (std::vector<std::int64_t>{9, 9, 9}));
}

}  // namespace
}  // namespace megatron::train
