#include "kernels/peak.h"

#include "kernel_testing.h"

namespace megatron::kernels {
namespace {

TEST(Peak, TimesWhatItRuns) {
  int runs = 0;
  const Timing timing = time_repeated(0.0, 4, [&] { ++runs; });
  EXPECT_EQ(timing.repetitions, 4);
  EXPECT_EQ(runs, 5);
  EXPECT_GT(timing.best_seconds, 0);
  EXPECT_GE(timing.median_seconds, timing.best_seconds);
}

TEST(Peak, RunsEverySizeAndLeavesNoMemoryInTheExecutor) {
  TestExecutor exec(2);
  const std::int64_t sizes[] = {30, 40};
  const std::int64_t before =
      exec.allocator().tracker().live_total() - exec.allocator().tracker().live(MemoryKind::scratch);
  EXPECT_GT(matmul_peak(exec, sizes, 5), 0);
  EXPECT_EQ(exec.counters().matmul_flops, 6 * 2 * (30 * 30 * 30 + 40 * 40 * 40));
  EXPECT_GT(matmul_peak_within(exec, 0.01), 0);
  EXPECT_EQ(exec.allocator().tracker().live_total() - exec.allocator().tracker().live(MemoryKind::scratch), before);
}

TEST(Peak, MultipliesIn16Bits) {
  TestExecutor exec(2);
  const std::int64_t sizes[] = {30};
  for (const DType type : {DType::bfloat16, DType::float16}) EXPECT_GT(matmul_peak(exec, sizes, 3, type), 0);
  EXPECT_EQ(exec.counters().matmul_flops, 2 * 4 * 2 * 30 * 30 * 30);
}

TEST(Peak, IsZeroOnMeta) {
  TestExecutor exec(1, Device::meta);
  const std::int64_t sizes[] = {30};
  EXPECT_EQ(matmul_peak(exec, sizes, 5), 0);
  EXPECT_EQ(matmul_peak_within(exec, 1), 0);
}

}  // namespace
}  // namespace megatron::kernels
