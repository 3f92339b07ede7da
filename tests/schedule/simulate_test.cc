#include "schedule/simulate.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "schedule/generators.h"
#include "schedule/passes.h"
#include "schedule_text.h"

namespace megatron::schedule {
namespace {

TEST(Simulate, BubbleIsThatOfThePaper) {
  for (int p = 1; p <= 8; ++p)
    for (std::int64_t m = 1; m <= 10; ++m)
      for (const Program& program : {one_f_one_b(p, m), gpipe({p}, m)}) {
        const Timeline timeline = simulate(insert_communication(program), {1.0, 2.0, 0, 0, 0.0});
        const double expected = static_cast<double>(p - 1) / static_cast<double>(m + p - 1);
        EXPECT_NEAR(timeline.bubble, expected, 1e-12) << p << " stages, " << m << " micro-batches";
        EXPECT_DOUBLE_EQ(timeline.total, 3.0 * static_cast<double>(m + p - 1));
        EXPECT_DOUBLE_EQ(ideal_bubble(p, m), expected);
      }
}

TEST(Simulate, MessagesTakeTime) {
  // F 0–1 | message 1–1.5 | F 1.5–2.5, B 2.5–4.5 | message 4.5–5 | B 5–7
  const Program program = insert_communication(one_f_one_b(2, 1));
  const Timeline timeline = simulate(program, {1.0, 2.0, 0, 0, 0.5});
  EXPECT_DOUBLE_EQ(timeline.total, 7.0);
  EXPECT_DOUBLE_EQ(timeline.intervals[1][0].end, 1.5);
  EXPECT_DOUBLE_EQ(timeline.busy[0], 3.0);
  EXPECT_DOUBLE_EQ(timeline.bubble, 1.0 - 6.0 / 14.0);
}

TEST(Simulate, StagesOfDifferentLength) {
  // F 0–1 | F 1–4, B 4–10 | B 10–12
  const Program program = insert_communication(one_f_one_b(2, 1));
  Durations durations;
  durations.scale = {1.0, 3.0};
  const Timeline timeline = simulate(program, durations);
  EXPECT_DOUBLE_EQ(timeline.total, 12.0);
  EXPECT_DOUBLE_EQ(timeline.busy[1], 9.0);
  EXPECT_DOUBLE_EQ(timeline.bubble, 0.5);
  durations.scale = {1.0};
  EXPECT_THROW(simulate(program, durations), Error);
}

TEST(Simulate, SpansLeaveOutTheWayToARank) {
  // Rank 1 runs from 1 to 10, rank 0 from 0 to 12.
  const Program program = insert_communication(one_f_one_b(2, 1));
  Durations durations;
  durations.scale = {1.0, 3.0};
  const Timeline timeline = simulate(program, durations);
  EXPECT_EQ(timeline.span, (std::vector<double>{12.0, 9.0}));
  EXPECT_DOUBLE_EQ(timeline.bubble_rate(), 1.0 - 9.0 / 12.0);
  EXPECT_DOUBLE_EQ(timeline.makespan_bubble_rate(), 1.0 - 9.0 / 12.0);
}

TEST(Simulate, MessagesMayBeLeftToThought) {
  for (const Program& compute :
       {one_f_one_b(4, 6), gpipe({3, 2, spec::PlacementKind::linear}, 5), gpipe({3, 2, spec::PlacementKind::v}, 5)}) {
    const Durations durations{1.0, 2.5, 0, 0, 0.25};
    const Timeline with = simulate(insert_communication(compute), durations), without = simulate(compute, durations);
    EXPECT_EQ(with.total, without.total);
    EXPECT_EQ(with.span, without.span);
  }
}

TEST(Simulate, EachStageCanHaveTimesOfItsOwn) {
  // F 0–1 | F 1–3, I 3–6, W 6–10 | I 6–8, W 8–9
  const Program program = program_of({"0F0 0I0 0W0", "1F0 1I0 1W0"});
  Durations durations;
  durations.of_stage = {{1.0, 2.0, 1.0}, {2.0, 3.0, 4.0}};
  const Timeline timeline = simulate(program, durations);
  EXPECT_EQ(timeline.span, (std::vector<double>{9.0, 9.0}));
  EXPECT_EQ(timeline.total, 10.0);
  EXPECT_EQ(timeline.busy, (std::vector<double>{4.0, 9.0}));
  EXPECT_EQ(timeline.bubble_rate(), 0.0);
  EXPECT_DOUBLE_EQ(timeline.makespan_bubble_rate(), 0.1);
  durations.of_stage.pop_back();
  EXPECT_THROW(simulate(program, durations), Error);
}

TEST(Simulate, DeadlockIsAnError) {
  EXPECT_THROW(simulate(program_of({"0rb0 0F0 0sf0 0B0", "1rf0 1F0 1B0 1sb0"}), {}), Error);
}

}  // namespace
}  // namespace megatron::schedule
