#include "kernels/peak.h"

#include "kernel_testing.h"

namespace megatron::kernels {
namespace {

TEST(Peak, MeasuresRatesAndCountsWhatItRuns) {
  TestExecutor exec(2);
  EXPECT_GT(measure_matmul_peak(exec, 0.02), 0);
  exec.counters() = {};
  const MeasuredRate product = measure_matmul(exec, 30, 40, 50, Transpose::yes, Transpose::yes, 0.001);
  EXPECT_EQ(exec.counters().matmul_flops, (product.repetitions + 1) * 2 * 30 * 40 * 50);
  EXPECT_GE(product.repetitions, 3);
  EXPECT_GE(product.best_gflops, product.median_gflops);
  const AttentionShape shape{2, 50, 4, 2, 16, true};
  EXPECT_GT(measure_attention_forward(exec, shape, 0.001).median_gflops, 0);
  EXPECT_GT(measure_attention_backward(exec, shape, 0.001).median_seconds, 0);
}

TEST(Peak, IsZeroOnMeta) {
  TestExecutor exec(1, Device::meta);
  EXPECT_EQ(measure_matmul_peak(exec, 1), 0);
  EXPECT_EQ(measure_matmul(exec, 3, 4, 5, Transpose::no, Transpose::no, 1).repetitions, 0);
}

}  // namespace
}  // namespace megatron::kernels
