#include "spec/batch_schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "support/reference_data.h"

namespace megatron::spec {
namespace {

using Json = nlohmann::json;

BatchSpec constant(std::int64_t global, std::int64_t round) {
  BatchSpec batch;
  batch.global_batch_size = global;
  batch.samples_per_round = round;
  return batch;
}

BatchSpec ramp(BatchRampup rampup, std::int64_t round) {
  BatchSpec batch = constant(rampup.target, round);
  batch.rampup = rampup;
  return batch;
}

/// Samples before each of the first steps, one step after the other.
std::vector<std::int64_t> walked(const BatchSchedule& schedule, std::size_t steps) {
  std::vector<std::int64_t> samples = {0};
  while (samples.size() < steps) samples.push_back(samples.back() + schedule.at(samples.back()).global_batch);
  return samples;
}

TEST(BatchSchedule, RampsUpInSteps) {
  const BatchSchedule schedule(ramp({16, 16, 96, 32}, 8));
  EXPECT_EQ(walked(schedule, 9), (std::vector<std::int64_t>{0, 16, 32, 48, 64, 80, 96, 128, 160}));
  EXPECT_EQ(schedule.samples_after(8), 160);
  EXPECT_EQ(schedule.iterations_within(160), 8);
  EXPECT_EQ(schedule.iterations_within(159), 7);
  const auto stretches = schedule.trajectory(std::nullopt);
  ASSERT_EQ(stretches.size(), 2U);
  EXPECT_EQ(stretches[1].first_iteration, 6);
  EXPECT_EQ(stretches[1].first_sample, 96);
  EXPECT_EQ(stretches[1].batch, (StepBatch{32, 32, 4}));
  EXPECT_EQ(schedule.trajectory(6).size(), 1U);
  EXPECT_EQ(schedule.largest(std::nullopt), (StepBatch{32, 32, 4}));
  EXPECT_EQ(schedule.largest(7), (StepBatch{32, 32, 4}));
  EXPECT_EQ(schedule.largest(6), stretches[0].batch);
  EXPECT_EQ(schedule.largest(0), stretches[0].batch);
}

/// Two, two, two, two, then four: a threshold of 8 samples.
TEST(BatchSchedule, StepsAtThresholds) {
  BatchSpec batch = constant(4, 2);
  batch.batch_steps = parse_batch_steps("0:2 80:4", 10);
  const BatchSchedule schedule(batch);
  EXPECT_EQ(walked(schedule, 7), (std::vector<std::int64_t>{0, 2, 4, 6, 8, 12, 16}));
  EXPECT_EQ(schedule.samples_after(6), 16);
  batch.train_samples = 15;
  EXPECT_EQ(train_iterations(batch), 5);
  batch.train_iters = 7;
  EXPECT_EQ(train_iterations(batch), 7);
}

/// Every closed form of the trajectory is the sum over its steps, for ramps of all kinds, rounding included.
TEST(BatchSchedule, ClosedFormsAreTheWalk) {
  int compared = 0;
  for (const std::int64_t round : {1, 2, 3, 7, 8})
    for (const std::int64_t start : {8, 12, 40})
      for (const std::int64_t increment : {1, 4, 13})
        for (const std::int64_t increments : {1, 2, 9, 31})
          for (const std::int64_t samples : {1, 50, 97, 1000, 3001}) {
            const BatchSchedule schedule(ramp({start, increment, samples, start + increment * increments}, round));
            const std::vector<std::int64_t> before = walked(schedule, 120);
            for (std::size_t i = 0; i < before.size(); i += 7) {
              const auto iterations = static_cast<std::int64_t>(i);
              ASSERT_EQ(schedule.samples_after(iterations), before[i]);
              ASSERT_EQ(schedule.iterations_within(before[i]), iterations);
              if (before[i] > 0) {
                ASSERT_EQ(schedule.iterations_within(before[i] - 1), iterations - 1);
              }
            }
            std::size_t changes = 0;
            for (std::size_t i = 1; i < before.size(); ++i)
              changes += schedule.at(before[i]).nominal != schedule.at(before[i - 1]).nominal ? 1 : 0;
            ASSERT_EQ(schedule.trajectory(120).size(), changes + 1);
            ++compared;
          }
  EXPECT_EQ(compared, 5 * 3 * 3 * 4 * 5);
}

TEST(BatchSchedule, ASizeBelowOneRoundTrainsNothing) {
  const BatchSchedule schedule(ramp({4, 4, 100, 32}, 8));
  EXPECT_EQ(schedule.at(0), (StepBatch{4, 0, 0}));
  EXPECT_THROW(schedule.samples_after(1), ConfigError);
  EXPECT_EQ(schedule.samples_after(0), 0);
  EXPECT_EQ(schedule.iterations_within(1000), 0);
  EXPECT_EQ(schedule.trajectory(std::nullopt).size(), 1U);
}

TEST(BatchSchedule, ImpossibleRampsAreRefused) {
  EXPECT_NO_THROW(check(BatchRampup{8, 8, 1, 16}));
  for (const BatchRampup& bad : {BatchRampup{0, 8, 1, 16}, BatchRampup{8, 0, 1, 16}, BatchRampup{8, 8, 0, 16},
                                 BatchRampup{16, 8, 1, 16}, BatchRampup{24, 8, 1, 16}, BatchRampup{8, 8, 1, 20}})
    EXPECT_THROW(check(bad), ConfigError) << bad.start << " " << bad.increment << " " << bad.target;
}

/// Megatron Core's calculators: constant and steps of the current version, ramp-up of 0.16.1.
TEST(BatchSchedule, IsMegatrons) {
  const auto path = testing::reference_dir() / "golden/mcore/sched/microbatches.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  const Json records = Json::parse(std::ifstream(path));
  int ramps = 0, steps = 0, refused = 0, trajectories = 0;
  for (const Json& record : records) {
    const std::string kind = record.at("kind");
    if (kind == "constant") continue;
    const Json& args = record.at("args");
    const bool decrease = args.at("decrease_batch_size_if_needed");
    BatchSpec batch = constant(args.at("global_batch_size"), args.at("micro_batch_size").get<std::int64_t>() *
                                                                 args.at("data_parallel_size").get<std::int64_t>());
    try {
      if (kind == "step") {
        if (decrease) throw ConfigError("a rule of the options");
        batch.batch_steps =
            parse_batch_steps(args.at("step_batch_size_schedule").get<std::string>(),
                              args.at("seq_length").is_null() ? 0 : args.at("seq_length").get<std::int64_t>());
      } else {
        const auto number = [&](std::size_t i) {
          const Json& value = args.at("rampup_batch_size").at(i);
          return value.is_string() ? std::stoll(value.get<std::string>()) : value.get<std::int64_t>();
        };
        batch.rampup = BatchRampup{number(0), number(1), number(2), batch.global_batch_size};
        check(*batch.rampup);
      }
    } catch (const ConfigError&) {
      EXPECT_TRUE(record.contains("error")) << record;
      ++refused;
      continue;
    }
    ASSERT_TRUE(record.contains("ok")) << record;
    const BatchSchedule schedule(batch);
    if (kind == "rampup_trajectory") {
      ++trajectories;
      std::int64_t samples = 0;
      for (const Json& row : record.at("ok")) {
        const StepBatch step = schedule.at(row.at(0));
        EXPECT_EQ(step.nominal, row.at(1).get<std::int64_t>()) << record;
        EXPECT_EQ(step.num_micro_batches, row.at(3).get<std::int64_t>()) << record;
        // Without rounding the reference goes on from batches that the ranks cannot share; such runs are refused.
        if (decrease) {
          EXPECT_EQ(samples, row.at(0).get<std::int64_t>()) << record;
        }
        samples += step.global_batch;
      }
      continue;
    }
    ++(kind == "step" ? steps : ramps);
    for (const Json& row : record.at("ok").at("rows")) {
      const StepBatch step = schedule.at(row.at(0));
      EXPECT_EQ(step.nominal, row.at(1).get<std::int64_t>()) << record;
      EXPECT_EQ(decrease ? step.global_batch : step.nominal, row.at(2).get<std::int64_t>()) << record;
      EXPECT_EQ(step.num_micro_batches, row.at(3).get<std::int64_t>()) << record;
      if (!decrease) {
        EXPECT_EQ(step.global_batch != step.nominal, !row.at(4).is_null()) << record;
      }
    }
  }
  EXPECT_GE(ramps, 10);
  EXPECT_GE(trajectories, 10);
  EXPECT_GE(steps, 6);
  EXPECT_GE(refused, 10);
}

}  // namespace
}  // namespace megatron::spec
