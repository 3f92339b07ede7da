// --reset-attention-mask: documents packed into one sample train as if each had a sample of its own.
#include <gtest/gtest.h>

#include <cmath>

#include "support/small_run.h"

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

constexpr std::int64_t kLength = 16;

/// Documents of 5, 3 and 8 tokens; each token's label is the next of its own document.
class Documents final : public data::Dataset {
 public:
  enum class Form { packed, packed_without_borders, apart };
  explicit Documents(Form form) : form_(form), sequences_(make_sequences(1000, kLength, 61)) {}
  std::int64_t size() const override { return 300; }
  data::Sample get(std::int64_t index) const override {
    data::Sample sample;
    sample.sequence_starts = {0};
    const std::int64_t first = form_ == Form::apart ? index : 3 * index, count = form_ == Form::apart ? 1 : 3;
    for (std::int64_t document = first; document < first + count; ++document) append(document, sample);
    pad(sample);
    if (form_ != Form::packed) sample.sequence_starts = {0, kLength};
    return sample;
  }

 private:
  void append(std::int64_t document, data::Sample& sample) const {
    constexpr std::int64_t kLengths[] = {5, 3, 8};
    const data::Sample whole = sequences_->get(document);
    for (std::int64_t i = 0; i < kLengths[document % 3]; ++i) {
      sample.tokens.push_back(whole.tokens[static_cast<std::size_t>(i)]);
      sample.labels.push_back(whole.labels[static_cast<std::size_t>(i)]);
      sample.position_ids.push_back(i);
      sample.loss_mask.push_back(1.0F);
    }
    sample.sequence_starts.push_back(static_cast<std::int64_t>(sample.tokens.size()));
  }
  static void pad(data::Sample& sample) {
    while (std::ssize(sample.tokens) < kLength) {
      sample.position_ids.push_back(std::ssize(sample.tokens));
      sample.tokens.push_back(0);
      sample.labels.push_back(0);
      sample.loss_mask.push_back(0.0F);
    }
  }

  Form form_;
  std::shared_ptr<const data::Dataset> sequences_;
};

SmallResult run_documents(bool llama, Documents::Form form, Layout layout) {
  spec::RunSpec run = small_run(llama);
  if (form == Documents::Form::apart) run.batch.global_batch_size *= 3;
  SmallOptions options;
  options.train = std::make_shared<Documents>(form);
  return train_small(complete(run, layout), options);
}

TEST(Documents, PackedOnesTrainAsIfTheyWereApart) {
  for (const bool llama : {false, true}) {
    const SmallResult apart = run_documents(llama, Documents::Form::apart, {1, 1, 1, false, 1});
    for (const Layout& layout : {Layout{1, 1, 1, false, 2}, Layout{2, 1, 1, true, 1}, Layout{1, 2, 1, false, 4},
                                 Layout{2, 2, 2, true, 2}, Layout{1, 1, 4, false, 1}}) {
      SCOPED_TRACE(layout_text(layout) + (llama ? " llama" : " gpt"));
      const SmallResult packed = run_documents(llama, Documents::Form::packed, layout);
      ASSERT_EQ(packed.steps.size(), apart.steps.size());
      for (std::size_t i = 0; i < packed.steps.size(); ++i) {
        EXPECT_EQ(packed.steps[i].trained_tokens, apart.steps[i].trained_tokens);
        EXPECT_NEAR(packed.steps[i].loss / apart.steps[i].loss, 1.0, 1e-5);
        EXPECT_NEAR(packed.steps[i].grad_norm / apart.steps[i].grad_norm, 1.0, 1e-4);
      }
      for (const auto& [name, values] : apart.weights) {
        // Adam blows up the rounding errors of this gradient, which is zero.
        if (name.find("linear_qkv.bias") == std::string::npos) {
          EXPECT_LT(relative_rms(packed.weights.at(name), values), 1e-4) << name;
        }
      }
    }
  }
}

// The samples above tell the two apart: what a document sees of others changes the norm by far more than is allowed.
TEST(Documents, WithoutBordersTheySeeEachOther) {
  const SmallResult apart = run_documents(false, Documents::Form::apart, {1, 1, 1, false, 1});
  const SmallResult mixed = run_documents(false, Documents::Form::packed_without_borders, {1, 1, 1, false, 1});
  EXPECT_GT(std::abs(mixed.steps[0].grad_norm / apart.steps[0].grad_norm - 1.0), 3e-4);
}

}  // namespace
}  // namespace megatron::parity
