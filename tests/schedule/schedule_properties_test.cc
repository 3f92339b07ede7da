// What the schedules promise, over many sizes: complete lists, stashes, idle time; and that damaged lists are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "schedule/generators.h"
#include "schedule/passes.h"
#include "schedule/simulate.h"
#include "schedule_text.h"

namespace megatron::schedule {
namespace {

constexpr int kMostRanks = 16;
constexpr std::int64_t kMostMicroBatches = 64;

std::int64_t peak(const Program& program, int rank) {
  return max_live_stashes(program.lists[static_cast<std::size_t>(rank)]);
}

std::int64_t largest_peak(const Program& program) {
  std::int64_t most = 0;
  for (const auto& list : program.lists) most = std::max(most, max_live_stashes(list));
  return most;
}

/// Idle time of the longest span.
double idle(const Program& program, double f, double i, double w) {
  Durations durations{f, i + w, i, w, 0.0};
  durations.scale.assign(static_cast<std::size_t>(program.placement.num_stages()), 1.0 / program.placement.num_chunks);
  const Timeline timeline = simulate(program, durations);
  return timeline.longest_span() - timeline.busiest();
}

TEST(ScheduleProperties, PeaksOfPlainSchedules) {
  for (int p = 1; p <= kMostRanks; ++p)
    for (std::int64_t m = 1; m <= kMostMicroBatches; ++m) {
      SCOPED_TRACE(str_cat(p, " ranks, ", m, " micro-batches"));
      const Program all_first = gpipe({p}, m), alternating = one_f_one_b(p, m);
      for (int r = 0; r < p; ++r) {
        ASSERT_EQ(peak(all_first, r), m);
        ASSERT_EQ(peak(alternating, r), std::min<std::int64_t>(m, p - r));
      }
      ASSERT_LE(largest_peak(zb_h1(p, m)), std::min<std::int64_t>(m, p));
      ASSERT_LE(largest_peak(zb_h2(p, m)), std::min<std::int64_t>(m, 2 * p - 1));
      ASSERT_LE(largest_peak(zb_v(p, m)), std::min<std::int64_t>(2 * m, 2 * p));
    }
}

TEST(ScheduleProperties, PeaksOfInterleavedSchedules) {
  for (int p = 1; p <= kMostRanks; ++p)
    for (int v = 1; v <= 4; ++v)
      for (std::int64_t m = p; m <= kMostMicroBatches; ++m)
        for (std::int64_t n = p; n <= std::min<std::int64_t>(m, 2 * p + 1); n += std::max(1, p / 2)) {
          if (!interleaving_problem(p, m, n).empty()) continue;
          const Program program = interleaved(p, v, m, n);
          for (int r = 0; r < p; ++r)
            ASSERT_EQ(peak(program, r), std::min<std::int64_t>(m * v, 2 * (p - r - 1) + (v - 1) * n + 1))
                << p << " ranks, " << v << " chunks, " << m << " micro-batches, groups of " << n << ", rank " << r;
        }
}

TEST(ScheduleProperties, AllListsAreComplete) {
  for (int p = 1; p <= kMostRanks; ++p)
    for (const std::int64_t m : {1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 64}) {
      SCOPED_TRACE(str_cat(p, " ranks, ", m, " micro-batches"));
      for (const Program& program : {zb_h1(p, m), zb_h2(p, m), zb_v(p, m)})
        ASSERT_NO_THROW(validate(insert_communication(program)));
      for (int v = 1; v <= 4; ++v) {
        if (!interleaving_problem(p, m, p).empty()) continue;
        ASSERT_NO_THROW(validate(insert_communication(interleaved(p, v, m, p))));
      }
    }
}

TEST(ScheduleProperties, IdleTimeIsThatOfTheFormulas) {
  const double times[][3] = {{1, 1, 1}, {2, 2, 1}, {2, 3, 1}, {3, 2, 2}, {3, 1, 1}, {4, 4, 3},
                             {5, 1, 4}, {1, 2, 1}, {1, 1, 2}, {1, 3, 2}, {2, 1, 3}};
  for (int p = 1; p <= kMostRanks; ++p)
    for (std::int64_t m = 2 * p - 1; m <= kMostMicroBatches; m += std::max(1, p / 2))
      for (const auto& [f, i, w] : times) {
        SCOPED_TRACE(str_cat(p, " ranks, ", m, " micro-batches, F ", f, " I ", i, " W ", w));
        ASSERT_NEAR(idle(one_f_one_b(p, m), f, i, w), (p - 1) * (f + i + w), 1e-9);
        ASSERT_NEAR(idle(gpipe({p}, m), f, i, w), (p - 1) * (f + i + w), 1e-9);
        ASSERT_NEAR(idle(zb_h1(p, m), f, i, w), (p - 1) * (w <= f ? f + i - w : i), 1e-9);
        ASSERT_NEAR(idle(zb_h2(p, m), f, i, w), (p - 1) * std::max({0.0, f + i - 2 * w, i - f}), 1e-9);
      }
}

TEST(ScheduleProperties, AVIsNeverIdle) {
  for (int p = 1; p <= kMostRanks; ++p)
    for (std::int64_t m = 2 * p - 1; m <= kMostMicroBatches; ++m) {
      const Program program = zb_v(p, m);
      Durations durations{2.0, 4.0, 2.0, 2.0, 0.0};
      durations.scale.assign(static_cast<std::size_t>(2 * p), 0.5);
      const Timeline timeline = simulate(program, durations);
      ASSERT_DOUBLE_EQ(timeline.longest_span(), timeline.busiest()) << p << " ranks, " << m << " micro-batches";
      ASSERT_DOUBLE_EQ(timeline.total, static_cast<double>(6 * m + p - 1)) << p << " ranks, " << m << " micro-batches";
    }
}

/// All programs of a small pipeline.
std::vector<Program> small_programs() {
  return {
      one_f_one_b(3, 4), gpipe({3}, 4), gpipe({2, 2, spec::PlacementKind::v}, 3), interleaved(2, 2, 4, 2), zb_h1(3, 5),
      zb_h2(3, 6),       zb_v(3, 6)};
}

/// Applies `damage` at each place of each list and expects a refusal that has `name` in it.
void expect_refusals(const std::function<bool(std::vector<Instruction>&, std::size_t, std::string&)>& damage) {
  int refused = 0;
  for (const Program& program : small_programs())
    for (std::size_t rank = 0; rank < program.lists.size(); ++rank)
      for (std::size_t at = 0; at < program.lists[rank].size(); ++at) {
        Program damaged = program;
        std::string name;
        if (!damage(damaged.lists[rank], at, name)) continue;
        try {
          validate(insert_communication(damaged));
          ADD_FAILURE() << text_of(damaged.lists[rank]) << " was accepted";
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what() << " lacks " << name;
          ++refused;
        }
      }
  EXPECT_GT(refused, 30);
}

TEST(ScheduleProperties, LostInstructionsAreNamed) {
  expect_refusals([](std::vector<Instruction>& list, std::size_t at, std::string& name) {
    // Without its F or I another pass of the same micro-batch is what stands wrong.
    name = str_cat(list[at].micro_batch);
    if (list[at].op == Op::backward || list[at].op == Op::backward_weight) name = to_text(list[at]);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  });
}

TEST(ScheduleProperties, DoubledInstructionsAreNamed) {
  expect_refusals([](std::vector<Instruction>& list, std::size_t at, std::string& name) {
    name = to_text(list[at]);
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), Instruction(list[at]));
    return true;
  });
}

TEST(ScheduleProperties, BackwardPassesOutOfOrderAreNamed) {
  expect_refusals([](std::vector<Instruction>& list, std::size_t at, std::string& name) {
    if (list[at].op == Op::forward || list[at].op == Op::backward_weight) return false;
    const auto other =
        std::find_if(list.begin() + static_cast<std::ptrdiff_t>(at) + 1, list.end(),
                     [&](const Instruction& i) { return i.op == list[at].op && i.stage == list[at].stage; });
    if (other == list.end()) return false;
    std::swap(list[at].micro_batch, other->micro_batch);
    name = str_cat(list[at].stage, "");
    return true;
  });
}

TEST(ScheduleProperties, PassesOfOtherRanksAreNamed) {
  expect_refusals([](std::vector<Instruction>& list, std::size_t at, std::string& name) {
    list[at].stage += 1;
    name = to_text(list[at]);
    // On the tip of a V, and with one pass, the next stage may stand on the same rank.
    return std::none_of(list.begin(), list.end(),
                        [&](const Instruction& i) { return i.stage == list[at].stage && &i != &list[at]; });
  });
}

TEST(ScheduleProperties, CirclesAreDeadlocks) {
  // The first rank waits for the gradient of micro-batch 0 before it sends what the second wants to do first.
  const Program circle = program_of({"0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"});
  try {
    validate(insert_communication(circle));
    ADD_FAILURE() << "a circle was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("deadlock: 0rb0 (before 0B0)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace megatron::schedule
