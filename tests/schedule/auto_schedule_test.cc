#include "schedule/auto_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "schedule/generators.h"
#include "schedule/passes.h"
#include "schedule/simulate.h"
#include "schedule_text.h"
#include "support/reference_data.h"

namespace megatron::schedule {
namespace {

double bubble_rate(const Program& program, const spec::PipelineTimes& t) {
  Durations durations{t.forward, t.input_grad + t.weight_grad, t.input_grad, t.weight_grad, t.message};
  durations.scale.assign(static_cast<std::size_t>(program.placement.num_stages()), 1.0 / program.placement.num_chunks);
  return simulate(program, durations).bubble_rate();
}

spec::StagePlacement v_of(int ranks) { return {ranks, 2, spec::PlacementKind::v}; }

std::string refusal(const AutoRequest& request) {
  try {
    auto_schedule(request);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AutoSchedule, KeepsWithinItsMemory) {
  for (const int p : {1, 2, 3, 4, 6, 9, 16})
    for (const std::int64_t m : {1, 5, 33})
      for (const spec::StagePlacement& placement : {spec::StagePlacement{p}, v_of(p)})
        for (const double more : {0.0, 0.4, 1.0})
          for (const double kept : {0.25, 1.0}) {
            SCOPED_TRACE(str_cat(p, " ranks, ", m, " micro-batches, ", placement.num_chunks, " chunks, + ", more));
            const double limit = smallest_memory_limit(placement, m) + more;
            const Program program = auto_schedule({placement, m, {2.0, 2.5, 1.5, 0.125}, limit, kept});
            ASSERT_NO_THROW(validate(insert_communication(program)));
            ASSERT_NO_THROW(check_memory(program, limit, kept));
          }
}

TEST(AutoSchedule, LessMemoryThanOneForwardOneBackward) {
  for (int p = 2; p <= 16; ++p)
    for (const std::int64_t m : {3 * p, 64}) {
      SCOPED_TRACE(str_cat(p, " ranks, ", m, " micro-batches"));
      const double reference = ideal_bubble(p, m);
      const auto rate_with = [&](std::int64_t half_stashes) {
        const double limit = static_cast<double>(half_stashes) / (2 * p);
        const Program program = auto_schedule({v_of(p), m, {}, limit});
        for (const auto& list : program.lists) EXPECT_LE(max_live_stashes(list), half_stashes);
        return bubble_rate(program, {});
      };
      const std::int64_t least = 2 * ((p + 1) / 3) + 2;
      ASSERT_LE(rate_with(2 * (p / 2) + 2), 0.6 * reference);
      ASSERT_LE(rate_with(least), 0.8 * reference);
      EXPECT_DOUBLE_EQ(smallest_memory_limit(v_of(p), m), static_cast<double>(least) / (2 * p));
      const std::string problem = refusal({v_of(p), m, {}, static_cast<double>(least - 1) / (2 * p)});
      EXPECT_NE(problem.find(str_cat(" (", least, " stashes of half a rank")), std::string::npos) << problem;
    }
}

TEST(AutoSchedule, RefusalsNameTheSmallestLimit) {
  EXPECT_EQ(refusal({{4}, 8, {}, 0.5}),
            "--pipeline-memory-limit 0.5: the smallest feasible limit of 4 ranks is 1 (4 stashes of a rank, 1F1B has "
            "4); with two stages per rank in V placement 0.5");
  EXPECT_EQ(refusal({v_of(3), 9, {}, 0.5}),
            "--pipeline-memory-limit 0.5: the smallest feasible limit of 3 ranks is 0.6667 (4 stashes of half a rank, "
            "1F1B has 6)");
  for (const double limit : {0.6667, 0.6666, 0.66666666}) EXPECT_EQ(refusal({v_of(3), 9, {}, limit}), "accepted");
  EXPECT_NE(refusal({{4}, 8, {0.0, 1, 1, 0}}).find("must be above 0"), std::string::npos);
  EXPECT_NE(refusal({{4}, 8, {}, 1.0, -0.5}).find("at least 0"), std::string::npos);
}

// Where W needs more than F kept, an I whose gradients do not fit is followed by its W at once.
TEST(AutoSchedule, WhatWNeedsMayWeighMoreThanAStash) {
  for (const spec::StagePlacement& placement : {spec::StagePlacement{4}, v_of(4)}) {
    const Program program = auto_schedule({placement, 12, {}, 1.0, 16.0});
    ASSERT_NO_THROW(validate(insert_communication(program)));
    for (const auto& list : program.lists) {
      EXPECT_EQ(max_pending_weight_passes(list), 1);
      EXPECT_LE(max_live_stashes(list), placement.num_stages());
    }
  }
}

TEST(AutoSchedule, IsNeverIdleWithTheMemoryOfOneForwardOneBackward) {
  for (int p = 1; p <= 16; ++p) {
    const std::int64_t m = 3 * p;
    EXPECT_NEAR(bubble_rate(auto_schedule({v_of(p), m, {}}), {}), 0.0, 1e-12) << p;
  }
}

/// A last stage that works longest (the head): the search that knows it waits less than the one that knows the mean.
TEST(AutoSchedule, EachStageHasItsTimes) {
  for (const spec::StagePlacement& placement : {spec::StagePlacement{4}, v_of(4)}) {
    SCOPED_TRACE(placement.num_chunks);
    AutoRequest request{placement, 12, {1.0, 1.0, 1.0, 0.05}, 1.0};
    Durations durations;
    durations.message = request.times.message;
    const double share = 1.0 / placement.num_chunks;
    for (int stage = 0; stage < placement.num_stages(); ++stage) {
      const double last = stage + 1 == placement.num_stages() ? 1.6 : 0.8;
      request.stage_times.push_back({last * share, 0.9 * last * share, 0.7 * last * share, 0.0});
      durations.of_stage.push_back({last * share, 0.9 * last * share, 0.7 * last * share});
    }
    AutoRequest by_mean = request;
    by_mean.stage_times.clear();
    const Program program = auto_schedule(request), other = auto_schedule(by_mean);
    ASSERT_NO_THROW(validate(insert_communication(program)));
    ASSERT_NO_THROW(check_memory(program, 1.0, 1.0));
    EXPECT_LE(simulate(program, durations).longest_span(), simulate(other, durations).longest_span());
  }
  AutoRequest wrong{{4}, 8};
  wrong.stage_times = {{1, 0, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}};
  EXPECT_NE(refusal(wrong).find("must be above 0"), std::string::npos);
}

TEST(AutoSchedule, WholeBackwardPasses) {
  for (const int p : {2, 3, 4, 8})
    for (const double more : {0.0, 0.25}) {
      const spec::StagePlacement placement = v_of(p);
      const double limit = smallest_memory_limit(placement, 2 * p) + more;
      AutoRequest request{placement, 2 * p, {}, limit};
      request.whole_backward = true;
      const Program program = auto_schedule(request);
      ASSERT_NO_THROW(validate(insert_communication(program)));
      ASSERT_NO_THROW(check_memory(program, limit, 1.0));
      for (const auto& list : program.lists) EXPECT_LE(max_pending_weight_passes(list), 1);
    }
}

struct Published {
  std::string model;
  int ranks = 0;
  std::int64_t m = 0;
  spec::PipelineTimes times;
  double plain = 0, h1 = 0, h2 = 0, one = 0, two = 0;
};

std::vector<Published> published() {
  std::vector<Published> rows;
  std::ifstream in(testing::reference_dir() / "golden/published/zero_bubble.csv");
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::vector<std::string> f;
    for (std::string field; std::getline(fields, field, ',');) f.push_back(field);
    const auto real = [&](std::size_t i) { return std::stod(f.at(i)); };
    rows.push_back({f.at(0),
                    std::stoi(f.at(1)),
                    std::stoll(f.at(2)),
                    {real(3), real(4), real(5), real(6)},
                    real(7),
                    real(9),
                    real(10),
                    real(11),
                    real(12)});
  }
  return rows;
}

TEST(AutoSchedule, PublishedBubbleRates) {
  MEGATRON_REQUIRE_REFERENCE(testing::reference_dir() / "golden/published/zero_bubble.csv");
  constexpr double kPoints = 0.01;  // one hundredth of the rate
  int compared = 0;
  for (const Published& row : published()) {
    SCOPED_TRACE(str_cat(row.model, ", ", row.ranks, " ranks, ", row.m, " micro-batches"));
    EXPECT_NEAR(bubble_rate(one_f_one_b(row.ranks, row.m), row.times), row.plain, 0.02 * kPoints);
    EXPECT_NEAR(bubble_rate(zb_h1(row.ranks, row.m), row.times), row.h1, 0.02 * kPoints);
    EXPECT_NEAR(bubble_rate(zb_h2(row.ranks, row.m), row.times), row.h2, 0.02 * kPoints);
    const auto searched = [&](double limit, double kept) {
      const Program program = auto_schedule({{row.ranks}, row.m, row.times, limit, kept});
      EXPECT_NO_THROW(check_memory(program, limit, kept));
      return bubble_rate(program, row.times);
    };
    EXPECT_LE(searched(1.0, 0.5), row.one + 0.1 * kPoints);
    EXPECT_LE(searched(2.0, 0.5), row.two + 0.1 * kPoints);
    EXPECT_LE(searched(2.0, 1.0), bubble_rate(zb_h2(row.ranks, row.m), row.times) + 1e-12);
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

}  // namespace
}  // namespace megatron::schedule
