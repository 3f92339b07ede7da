// The text form of faults.
#include "comm/fault_plan.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace megatron::comm {
namespace {

TEST(FaultPlan, ParsesAllKinds) {
  const FaultPlan plan = parse_fault_plan(
      "rank=1,operation=20,kind=throw;rank=0,iteration=3,kind=delay,seconds=0.5;rank=2,operation=0,kind=wrong_count;"
      "rank=3,operation=1,kind=exit;rank=4,operation=1,kind=kill;rank=5,operation=1,kind=stop;kind=nan,operation=7,"
      "rank=6");
  ASSERT_EQ(plan.faults.size(), 7U);
  EXPECT_EQ(plan.faults[0].rank, 1);
  EXPECT_EQ(plan.faults[0].operation, 20);
  EXPECT_EQ(plan.faults[0].iteration, -1);
  EXPECT_EQ(plan.faults[0].kind, FaultKind::throw_error);
  EXPECT_EQ(plan.faults[1].iteration, 3);
  EXPECT_EQ(plan.faults[1].kind, FaultKind::delay);
  EXPECT_DOUBLE_EQ(plan.faults[1].seconds, 0.5);
  EXPECT_EQ(plan.faults[2].kind, FaultKind::wrong_count);
  EXPECT_EQ(plan.faults[3].kind, FaultKind::exit_process);
  EXPECT_EQ(plan.faults[4].kind, FaultKind::kill_process);
  EXPECT_EQ(plan.faults[5].kind, FaultKind::stop_process);
  EXPECT_EQ(plan.faults[6].kind, FaultKind::nan);
  EXPECT_EQ(plan.faults[6].rank, 6);
  EXPECT_TRUE(parse_fault_plan("").faults.empty());
}

TEST(FaultPlan, NamesTheBadField) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parse_fault_plan(text);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("rank=x,operation=1,kind=throw").find("rank=x"), std::string::npos);
  EXPECT_NE(message("rank=-1,operation=1,kind=throw").find("rank=-1"), std::string::npos);
  EXPECT_NE(message("rank=1,operation=1,kind=thrown").find("kind=thrown"), std::string::npos);
  EXPECT_NE(message("rank=1,operation=1,kind=thrown").find("wrong_count"), std::string::npos);
  EXPECT_NE(message("rank=1,op=1,kind=throw").find("\"op\""), std::string::npos);
  EXPECT_NE(message("rank=1,operation,kind=throw").find("\"operation\""), std::string::npos);
  EXPECT_NE(message("operation=1,kind=throw").find("no rank"), std::string::npos);
  EXPECT_NE(message("rank=1,kind=throw").find("neither operation nor iteration"), std::string::npos);
  EXPECT_NE(message("rank=1,operation=1").find("no kind"), std::string::npos);
  EXPECT_NE(message("rank=1,operation=1,kind=delay").find("kind=delay needs seconds"), std::string::npos);
  EXPECT_NE(message("rank=1,operation=1,iteration=1,kind=nan").find("exclude each other"), std::string::npos);
  EXPECT_NE(message("rank=1,operation=99999999999999999999,kind=kill").find("0 to 9223372036854775807"),
            std::string::npos);
  EXPECT_NE(message("rank=1,operation=1,kind=delay,seconds=nan").find("seconds=nan"), std::string::npos);
  EXPECT_NE(message("rank=1,operation=1,kind=kill,seconds=3").find("seconds"), std::string::npos);
  EXPECT_NE(message("rank=99999999999999999999,operation=1,kind=kill").find("rank="), std::string::npos);
}

TEST(FaultPlan, WhatCanNeverStrikeIsRefused) {
  const auto message = [](const std::string& text, int world_size,
                          std::optional<std::int64_t> iterations) -> std::string {
    try {
      check_fault_plan(parse_fault_plan(text), world_size, iterations);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message("rank=3,iteration=5,kind=throw;rank=0,operation=900,kind=nan", 4, 5), "accepted");
  EXPECT_EQ(message("rank=0,iteration=99,kind=throw", 4, {}), "accepted");
  EXPECT_EQ(message("rank=0,operation=1,kind=nan;rank=4,operation=1,kind=throw", 4, 5),
            "--inject-fault: rank=4 is outside the world of 4 ranks; nearest: rank=3");
  EXPECT_EQ(message("rank=0,iteration=6,kind=throw", 4, 5),
            "--inject-fault: iteration=6 is beyond the run of 5 iterations; nearest: iteration=5");
}

}  // namespace
}  // namespace megatron::comm
