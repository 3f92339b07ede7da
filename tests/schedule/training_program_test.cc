#include "schedule/training_program.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "schedule/auto_schedule.h"
#include "schedule/generators.h"
#include "schedule/passes.h"
#include "schedule/schedule_name.h"
#include "schedule_text.h"

namespace megatron::schedule {
namespace {

TEST(TrainingProgram, RunsUseTheirSchedule) {
  spec::ParallelSpec parallel;
  parallel.pipeline_parallel = 2;
  EXPECT_EQ(text_of(training_program(parallel, 2).lists[0]), "0F0 0sf0 0F1 0sf1 0rb0 0B0 0rb1 0B1");
  EXPECT_EQ(text_of(training_program(parallel, 2).lists[1]), "1rf0 1F0 1B0 1sb0 1rf1 1F1 1B1 1sb1");
  EXPECT_EQ(text_of(evaluation_program(parallel, 1).lists[1]), "1rf0 1F0");
  parallel.schedule = spec::PipelineSchedule::gpipe;
  EXPECT_EQ(text_of(training_program(parallel, 2).lists[1]), "1rf0 1F0 1rf1 1F1 1B0 1sb0 1B1 1sb1");
}

TEST(TrainingProgram, EveryKind) {
  using spec::PipelineSchedule;
  spec::ParallelSpec parallel;
  parallel.pipeline_parallel = 3;
  parallel.schedule = PipelineSchedule::zb_h1;
  EXPECT_EQ(training_passes(parallel, 5), zb_h1(3, 5));
  parallel.schedule = PipelineSchedule::zb_h2;
  EXPECT_EQ(training_passes(parallel, 5), zb_h2(3, 5));
  parallel.schedule = PipelineSchedule::zb_auto;
  EXPECT_EQ(training_passes(parallel, 5), split_backward(one_f_one_b(3, 5)));  // until times are known
  parallel.virtual_chunks = 2;
  parallel.placement_kind = spec::PlacementKind::v;
  for (const auto& list : training_passes(parallel, 5).lists) EXPECT_EQ(max_pending_weight_passes(list), 1);
  parallel.virtual_chunks = 1;
  parallel.placement_kind = spec::PlacementKind::linear;
  parallel.pipeline_times = spec::PipelineTimes{2, 2, 1, 0};
  EXPECT_EQ(training_passes(parallel, 5), auto_schedule({{3}, 5, {2, 2, 1, 0}}));
  parallel.schedule = PipelineSchedule::interleaved;
  parallel.virtual_chunks = 2;
  EXPECT_EQ(training_passes(parallel, 6), interleaved(3, 2, 6, 3));
  parallel.micro_batch_group_size = 6;
  EXPECT_EQ(training_passes(parallel, 6), interleaved(3, 2, 6, 6));
  EXPECT_THROW(training_passes(parallel, 5), ConfigError);
  parallel.schedule = PipelineSchedule::zb_v;
  parallel.placement_kind = spec::PlacementKind::v;
  EXPECT_EQ(training_passes(parallel, 5), zb_v(3, 5));
  EXPECT_EQ(training_program(parallel, 5), insert_communication(zb_v(3, 5)));
  EXPECT_EQ(evaluation_program(parallel, 2), insert_communication(forward_only(parallel.placement(), 2)));
}

TEST(TrainingProgram, NamesOfSchedules) {
  for (const std::string& name : schedule_names()) EXPECT_EQ(name_of(find_schedule(name).value()), name);
  EXPECT_EQ(schedule_names().size(), 7U);
  EXPECT_FALSE(find_schedule("zb-h3").has_value());
  EXPECT_FALSE(find_schedule("file").has_value());
}

}  // namespace
}  // namespace megatron::schedule
