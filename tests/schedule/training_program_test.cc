#include "schedule/training_program.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace megatron::schedule
