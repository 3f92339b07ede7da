#include "schedule/batch_check.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace megatron::schedule {
namespace {

spec::RunSpec growing_run() {
  spec::RunSpec run;
  run.parallel.pipeline_parallel = 4;
  run.batch.samples_per_round = 1;
  run.batch.global_batch_size = 8;
  run.batch.batch_steps = {{0, 2}, {20, 8}};
  run.batch.train_iters = 20;
  return run;
}

/// The interleaved schedule needs at least as many micro-batches as stages: the first batch has too few.
TEST(BatchCheck, EveryBatchMustSuitTheSchedule) {
  spec::RunSpec run = growing_run();
  EXPECT_NO_THROW(check_batches(run));
  run.parallel.schedule = spec::PipelineSchedule::interleaved;
  run.parallel.virtual_chunks = 2;
  EXPECT_THROW(check_batches(run), ConfigError);
  EXPECT_NO_THROW(check_batches(run, 20));  // the run has come past it
  run.batch.batch_steps = {{0, 8}, {80, 3}};
  try {
    check_batches(run);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("global batch 3 (from sample 80 on)"), std::string::npos) << error.what();
  }
  run.batch.train_iters = 10;  // ends before
  EXPECT_NO_THROW(check_batches(run));
}

}  // namespace
}  // namespace megatron::schedule
