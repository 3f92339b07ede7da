#include "metrics/log_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>

#include "base/check.h"

namespace megatron::metrics {
namespace {

std::chrono::system_clock::time_point noon() {
  return std::chrono::system_clock::time_point(std::chrono::microseconds(1'706'720'709'123'456LL));
}

StepRecord step(std::int64_t iteration, double loss) {
  StepRecord record;
  record.iteration = iteration;
  record.consumed_samples = iteration * 16;
  record.global_batch_size = 16;
  record.trained_tokens = 1000;
  record.computed_tokens = 1024;
  record.loss = loss;
  record.grad_norm = 1.25;
  record.lr = 3e-4;
  record.step_seconds = 0.5;
  record.forward_seconds = 0.1;
  record.backward_seconds = 0.2;
  record.exposed_communication_seconds = 0.01;
  record.optimizer_seconds = 0.05;
  record.data_seconds = 0.001;
  record.model_flops = 1e12;
  return record;
}

LogConfig config() {
  LogConfig c;
  c.train_iters = 200;
  c.world_size = 4;
  c.peak_flops_per_second = 4e12;
  return c;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Timestamp, MicrosecondsInLocalTime) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(format_timestamp(noon()), "2024-01-31 17:05:09.123456");
}

TEST(IntervalLog, MegatronFieldsExactly) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  IntervalLog log(config());
  log.add(step(9, 2.0));
  log.add(step(10, 4.0));
  const std::string line = log.take_line(noon());
  EXPECT_EQ(
      line.substr(0, line.find(" trained tokens")),
      " [2024-01-31 17:05:09.123456] iteration       10/     200 | consumed samples:          160 | elapsed time per "
      "iteration (ms): 500.0 | learning rate: 3.000000E-04 | global batch size:    16 | lm loss: 3.000000E+00 | loss "
      "scale: 1.0 | grad norm: 1.250 | number of skipped iterations:   0 | number of nan iterations:   0 |");
  const std::string own = line.substr(line.find(" trained tokens"));
  EXPECT_EQ(
      own.substr(0, own.find(" ETA: ")),
      " trained tokens: 2000 | forward (ms): 100.0 | backward (ms): 200.0 | exposed communication (ms): 10.0 | "
      "optimizer (ms): 50.0 | data (ms): 1.0 | tokens/s: 2000 | model TFLOP/s: 2.000 | share of peak (%): 50.0 |");
  EXPECT_TRUE(std::regex_search(line, std::regex("ETA: [^|]+ \\|$")));
}

// Every field of an interval is forgotten when its line is printed.
TEST(IntervalLog, StartsAnewAfterEachLine) {
  IntervalLog log(config());
  log.add(step(1, 8.0));
  log.take_line(noon());
  EXPECT_TRUE(log.empty());
  log.add(step(2, 4.0));
  const std::string line = log.take_line(noon());
  EXPECT_TRUE(contains(line, "lm loss: 4.000000E+00 |")) << line;
  EXPECT_TRUE(contains(line, "trained tokens: 1000 |")) << line;
  EXPECT_EQ(log.take_line(noon()), "");
}

TEST(IntervalLog, OptionalFieldsInTheirPlaces) {
  LogConfig c = config();
  c.log_throughput = true;
  IntervalLog log(c);
  StepRecord record = step(1, 1.0);
  record.num_zeros = 12;
  record.params_norm = 33.5;
  log.add(record);
  const std::string line = log.take_line(noon());
  EXPECT_TRUE(contains(line, "(ms): 500.0 | throughput per GPU (TFLOP/s/GPU): 0.5 | learning rate:")) << line;
  EXPECT_TRUE(contains(line, "grad norm: 1.250 | num zeros: 12 | params norm: 33.500 | number of skipped")) << line;
}

TEST(IntervalLog, NanIsPrintedAndCounted) {
  IntervalLog log(config());
  StepRecord record = step(1, std::numeric_limits<double>::quiet_NaN());
  record.grad_norm = std::numeric_limits<double>::infinity();
  record.nan = record.skipped = true;
  log.add(record);
  const std::string line = log.take_line(noon());
  EXPECT_TRUE(contains(line, "lm loss: nan |")) << line;
  EXPECT_TRUE(contains(line, "grad norm: inf |")) << line;
  EXPECT_TRUE(contains(line, "number of skipped iterations:   1 | number of nan iterations:   1 |")) << line;
}

TEST(IntervalLog, RedoneStepsAreCountedWhereTheyCanBe) {
  IntervalLog log(config());
  RunSummary summary(config());
  for (const bool redone : {true, false, true}) {
    StepRecord record = step(1, 1.0);
    record.redone = redone;
    log.add(record);
    summary.add(record);
  }
  const std::string line = log.take_line(noon());
  EXPECT_TRUE(contains(line, "nan iterations:   0 | number of redone iterations:   2 | trained tokens")) << line;
  EXPECT_TRUE(contains(summary.text({}), "3 iterations (0 skipped, 2 redone) in ")) << summary.text({});
}

TEST(IntervalLog, SkippedAndMaskedStepsDoNotEnterTheLoss) {
  IntervalLog log(config());
  StepRecord skipped = step(1, 100.0);
  skipped.skipped = true;
  StepRecord masked = step(2, 0.0);
  masked.trained_tokens = 0;
  log.add(skipped);
  log.add(masked);
  log.add(step(3, 2.0));
  const std::string line = log.take_line(noon());
  EXPECT_TRUE(contains(line, "lm loss: 2.000000E+00 |")) << line;
  EXPECT_TRUE(contains(line, "iterations without trained tokens: 1 |")) << line;
}

TEST(ValidationLines, FramedByDashes) {
  const std::string dashes(95, '-');
  EXPECT_EQ(
      validation_lines({100, 2.0, 5000, 1.0}),
      str_cat(dashes,
              "\n validation loss at iteration 100 | lm loss value: 2.000000E+00 | lm loss PPL: 7.389056E+00 | \n",
              dashes, "\n"));
  EXPECT_TRUE(contains(validation_lines({7, 30.0, 1, 0.0}, " on test set"),
                       " validation loss at iteration 7 on test set | lm loss value: 3.000000E+01 | lm loss PPL: "
                       "4.851652E+08 | \n"));
  EXPECT_TRUE(contains(validation_lines({7, std::nan(""), 1, 0.0}), "lm loss value: nan | lm loss PPL: nan |"));
}

TEST(ProgressText, SaysWhereTheRunIs) {
  const std::string text = progress_text(step(50, 2.5), config());
  EXPECT_TRUE(contains(text, "iteration 50/200 | loss 2.5000 | 2000 tokens/s")) << text;
}

TEST(RunSummary, AveragesThroughputAndMemory) {
  RunSummary summary(config());
  summary.add(step(1, 1.0));
  StepRecord slow = step(2, 1.0);
  slow.step_seconds = 1.5;
  slow.forward_seconds = 0.3;
  summary.add(slow);
  const std::string text = summary.text({{"parameter", 1024}, {"stash", 2048}});
  for (const char* part :
       {"2 iterations (0 skipped)", "step (ms): 1000.0 | forward (ms): 200.0 | backward (ms): 200.0",
        "trained tokens: 2000 | computed tokens: 2048 | trained tokens/s: 1000", "model TFLOP/s: 1.000",
        "share of peak (%): 25.0", "parameter: 1.00 KiB | stash: 2.00 KiB | total: 3.00 KiB"})
    EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
}

}  // namespace
}  // namespace megatron::metrics
