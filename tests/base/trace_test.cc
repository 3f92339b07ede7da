#include "base/trace.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"

namespace megatron {
namespace {

std::int64_t duration(const TraceEvent& event) { return event.end_ns - event.begin_ns; }

/// step { data, forward { two kernels, one of them with a kernel inside }, wait }
void record_step(Trace& trace) {
  const TraceSpan step(&trace, SpanKind::step, "step", {}, "7");
  { const TraceSpan data(&trace, SpanKind::phase, "data"); }
  {
    const TraceSpan forward(&trace, SpanKind::phase, "forward", {}, "0F0");
    trace.open(SpanKind::kernel, "product");
    trace.close({100, 10});
    trace.open(SpanKind::kernel, "product");
    trace.open(SpanKind::kernel, "copy");
    trace.close({0, 6});
    trace.close({50, 8});
  }
  const TraceSpan wait(&trace, SpanKind::wait, "all_reduce", "tp",
                       "a label that is longer than what an event has room for");
}

TEST(Trace, EventsNestInTheOrderOfTheirBeginnings) {
  Trace trace(100);
  record_step(trace);
  const auto& events = trace.events();
  ASSERT_EQ(events.size(), 7U);
  const TraceEvent& step = events[0];
  const TraceEvent& forward = events[2];
  EXPECT_STREQ(step.label.data(), "7");
  EXPECT_STREQ(forward.label.data(), "0F0");
  for (const TraceEvent& event : events) {
    EXPECT_LE(step.begin_ns, event.begin_ns);
    EXPECT_LE(event.end_ns, step.end_ns);
  }
  EXPECT_LE(events[1].end_ns, forward.begin_ns);
  EXPECT_LE(forward.begin_ns, events[3].begin_ns);
  EXPECT_LE(events[3].end_ns, events[4].begin_ns);
  EXPECT_LE(events[4].begin_ns, events[5].begin_ns);
  EXPECT_LE(events[5].end_ns, events[4].end_ns);
  EXPECT_EQ(events[4].work.bytes, 8);
  EXPECT_STREQ(events[6].group.data(), "tp");
  EXPECT_STREQ(events[6].label.data(), "a label that is longer than what an eve");
}

TEST(Trace, OwnTimesAddUpToTheStepAndWorkCountsOnce) {
  Trace trace(100);
  record_step(trace);
  record_step(trace);
  const std::vector<SpanTotal> totals = trace.totals();
  ASSERT_EQ(totals.size(), 6U);
  std::int64_t sum = 0;
  for (const SpanTotal& total : totals) {
    EXPECT_GE(total.own_ns, 0) << total.name;
    sum += total.own_ns;
  }
  EXPECT_EQ(sum, duration(trace.events()[0]) + duration(trace.events()[7]));
  EXPECT_EQ(totals[3].name, "product");
  EXPECT_EQ(totals[3].calls, 4);
  EXPECT_EQ(totals[3].work.flops, 300);
  EXPECT_EQ(totals[3].work.bytes, 2 * (10 + 8 - 6));
  EXPECT_EQ(totals[4].name, "copy");
  EXPECT_EQ(totals[4].work.bytes, 12);
  EXPECT_EQ(totals[5].group, "tp");
}

TEST(Trace, WhatFindsNoRoomStillCounts) {
  Trace whole(100), cut(3), none(0);
  for (Trace* trace : {&whole, &cut, &none}) record_step(*trace);
  EXPECT_EQ(whole.num_left_out(), 0);
  EXPECT_EQ(cut.events().size(), 3U);
  EXPECT_EQ(cut.num_left_out(), 4);
  EXPECT_GT(cut.events()[0].end_ns, 0);  // the step began among the first three and ended after them
  EXPECT_EQ(none.num_left_out(), 7);
  for (const Trace* trace : {&cut, &none}) {
    const auto calls = [](const Trace& t) {
      const auto totals = t.totals();
      return std::accumulate(totals.begin(), totals.end(), std::int64_t{0},
                             [](std::int64_t sum, const SpanTotal& total) { return sum + total.calls; });
    };
    EXPECT_EQ(calls(*trace), calls(whole));
  }
}

TEST(Trace, NullRecordsNothingAndAnEndWithoutABeginningIsAnError) {
  { const TraceSpan span(nullptr, SpanKind::kernel, "product"); }
  Trace trace(10);
  EXPECT_THROW(trace.close(), Error);
}

}  // namespace
}  // namespace megatron
