#include "train/batch_feeder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace megatron::train {
namespace {

std::vector<nn::MicroBatch> batch_of(const StepSamples& step) {
  std::vector<nn::MicroBatch> batches(1);
  batches[0].ids = {step.first_sample, step.global_batch};
  return batches;
}

TEST(BatchFeeder, GivesEachStepItsOwnSamples) {
  std::atomic<int> made{0};
  BatchFeeder feeder([&](const StepSamples& step) {
    ++made;
    return batch_of(step);
  });
  for (std::int64_t step = 0; step < 50; ++step) {
    const StepSamples now{4 * step, 4, 1}, next{4 * step + 4, 4, 1};
    EXPECT_EQ(feeder.take(now, next)[0].ids, (std::vector<std::int64_t>{4 * step, 4}));
  }
  // A step that nobody announced, then one with another batch size than announced.
  EXPECT_EQ(feeder.take({7, 4, 1}, StepSamples{11, 4, 1})[0].ids[0], 7);
  EXPECT_EQ(feeder.take({11, 8, 1}, {})[0].ids, (std::vector<std::int64_t>{11, 8}));
  EXPECT_EQ(feeder.take({19, 8, 1}, {})[0].ids[0], 19);
}

TEST(BatchFeeder, TheNextBatchIsMadeAhead) {
  std::atomic<std::int64_t> latest{-1};
  BatchFeeder feeder([&](const StepSamples& step) {
    auto batches = batch_of(step);
    latest = step.first_sample;
    return batches;
  });
  feeder.take({0, 4, 1}, StepSamples{4, 4, 1});
  for (int i = 0; i < 10'000 && latest.load() != 4; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(latest.load(), 4) << "without being asked for it";
}

TEST(BatchFeeder, ErrorsComeWithTheStepTheyBelongTo) {
  BatchFeeder feeder([](const StepSamples& step) {
    if (step.first_sample == 4) throw std::runtime_error("no sample 4");
    return batch_of(step);
  });
  EXPECT_EQ(feeder.take({0, 4, 1}, StepSamples{4, 4, 1}).size(), 1U);
  EXPECT_THROW(feeder.take({4, 4, 1}, StepSamples{8, 4, 1}), std::runtime_error);
  EXPECT_EQ(feeder.take({8, 4, 1}, StepSamples{4, 4, 1})[0].ids[0], 8);
  // The failure of a step that is not taken is of no interest.
}

}  // namespace
}  // namespace megatron::train
