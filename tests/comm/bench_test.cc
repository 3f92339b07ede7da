// The benchmark of collectives runs and reports every operation at every size.
#include "comm/bench.h"

#include <gtest/gtest.h>

namespace megatron::comm {
namespace {

TEST(CommBench, ReportsEachOperationAtEachSize) {
  const std::vector<CommTiming> timings = bench_collectives(3, {100, 200000}, 2);
  ASSERT_EQ(timings.size(), 8U);
  const char* const operations[] = {"all_reduce", "reduce_scatter", "all_gather", "send"};
  for (std::size_t i = 0; i < timings.size(); ++i) {
    EXPECT_EQ(timings[i].operation, operations[i % 4]);
    EXPECT_EQ(timings[i].bytes, i < 4 ? 192 : 200064);  // whole rows of 64 bytes for each rank
    EXPECT_GT(timings[i].seconds, 0);
    EXPECT_GT(timings[i].limit_seconds, 0);
  }
}

// From 16 MiB on every measurement starts with cold caches.
TEST(CommBench, MeasuresTensorsLargerThanCaches) {
  const std::vector<CommTiming> timings = bench_collectives(2, {16 << 20}, 1);
  ASSERT_EQ(timings.size(), 4U);
  for (const CommTiming& timing : timings) {
    EXPECT_EQ(timing.bytes, 16 << 20);
    EXPECT_GT(timing.seconds, 0);
    EXPECT_GT(timing.limit_seconds, 0);
    EXPECT_EQ(timing.median_seconds, timing.seconds);  // of one repeat
  }
}

}  // namespace
}  // namespace megatron::comm
