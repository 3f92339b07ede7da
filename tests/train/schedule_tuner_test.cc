#include "train/schedule_tuner.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "base/check.h"
#include "schedule/generators.h"
#include "schedule/passes.h"
#include "schedule/program_text.h"
#include "support/small_run.h"

namespace megatron::train {
namespace {

using megatron::testing::complete;
using megatron::testing::make_sequences;
using megatron::testing::small_run;
using megatron::testing::SmallOptions;
using megatron::testing::SmallResult;
using megatron::testing::train_small;

SmallResult train_with(spec::PipelineSchedule schedule, const std::string& out, std::int64_t iterations,
                       std::optional<double> limit = {}) {
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = iterations;
  run.model.hidden_dropout = 0.1;
  run.parallel.schedule = schedule;
  run.parallel.schedule_out = out;
  if (limit) {
    run.model.num_layers = 4;
    run.parallel.virtual_chunks = 2;
    run.parallel.placement_kind = spec::PlacementKind::v;
    run.parallel.pipeline_memory_limit = limit;
  }
  SmallOptions options;
  options.train = make_sequences(512, 16, 61);
  return train_small(complete(run, {1, 2, 2, false, 1}), options);
}

int lines_with(const SmallResult& result, const std::string& text) {
  int count = 0;
  for (const std::string& line : result.lines) count += line.find(text) != std::string::npos ? 1 : 0;
  return count;
}

TEST(ScheduleTuner, SearchesAgainWithMeasuredTimes) {
  const std::string out = (std::filesystem::temp_directory_path() / "megatron_schedule_tuner_test.txt").string();
  const SmallResult plain = train_with(spec::PipelineSchedule::one_f_one_b, out, 8);
  EXPECT_EQ(schedule::read_program(out), schedule::one_f_one_b(2, 4));
  EXPECT_EQ(lines_with(plain, "pipeline schedule for measured times"), 0);

  const SmallResult early = train_with(spec::PipelineSchedule::zb_auto, out, 4);
  EXPECT_EQ(schedule::read_program(out), schedule::split_backward(schedule::one_f_one_b(2, 4)));
  EXPECT_EQ(lines_with(early, "pipeline schedule for measured times"), 0);

  const SmallResult searched = train_with(spec::PipelineSchedule::zb_auto, out, 8);
  EXPECT_EQ(lines_with(searched, "pipeline schedule for measured times"), 1);
  EXPECT_EQ(lines_with(searched, "pipeline rank 1: 1F0"), 1);
  const schedule::Program program = schedule::read_program(out);
  EXPECT_NO_THROW(schedule::validate(schedule::insert_communication(program)));
  EXPECT_NO_THROW(schedule::check_memory(program, 1.0, 1.0));
  ASSERT_EQ(searched.steps.size(), plain.steps.size());
  for (std::size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_EQ(searched.steps[i].loss, plain.steps[i].loss) << i;
    EXPECT_EQ(searched.steps[i].grad_norm, plain.steps[i].grad_norm) << i;
  }
  EXPECT_EQ(searched.weights, plain.weights);
  std::filesystem::remove(out);
}

/// V placement cannot change while a run goes on: it starts with whole backward passes within the limit.
TEST(ScheduleTuner, StartsInVPlacementWithinTheLimit) {
  const std::string out = (std::filesystem::temp_directory_path() / "megatron_schedule_tuner_v_test.txt").string();
  const SmallResult early = train_with(spec::PipelineSchedule::zb_auto, out, 4, 1.0);
  const schedule::Program first = schedule::read_program(out);
  EXPECT_EQ(first.placement.kind, spec::PlacementKind::v);
  for (const auto& list : first.lists) EXPECT_EQ(schedule::max_pending_weight_passes(list), 1);
  EXPECT_NO_THROW(schedule::check_memory(first, 1.0, 1.0));

  const SmallResult searched = train_with(spec::PipelineSchedule::zb_auto, out, 6, 1.0);
  EXPECT_EQ(lines_with(searched, "pipeline stage 3: F "), 1);
  EXPECT_NO_THROW(schedule::check_memory(schedule::read_program(out), 1.0, 1.0));
  for (std::size_t i = 0; i < early.steps.size(); ++i) EXPECT_EQ(searched.steps[i].loss, early.steps[i].loss) << i;
  std::filesystem::remove(out);
}

TEST(ScheduleTuner, AnOutputThatCannotBeWrittenIsToldBeforeTheFirstStep) {
  SmallResult result;
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_THROW(result = train_with(spec::PipelineSchedule::one_f_one_b, folder, 2), IoError);
  EXPECT_THROW(result = train_with(spec::PipelineSchedule::one_f_one_b, folder + "/none/here.txt", 2), IoError);
  EXPECT_TRUE(result.steps.empty());
}

}  // namespace
}  // namespace megatron::train
