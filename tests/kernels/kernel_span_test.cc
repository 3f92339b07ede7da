#include "kernels/kernel_span.h"

#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"

namespace megatron::kernels {
namespace {

Tensor ones(Executor& exec, const Shape& shape) {
  Tensor tensor = exec.empty(shape, DType::float32);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data<float>()[i] = 1.0F;
  return tensor;
}

TEST(KernelSpan, FrontDoorsTellNameFlopsAndBytes) {
  Executor exec(tensor::Allocator::create(Device::cpu), 1);
  const Tensor x = ones(exec, {5, 3}), w = ones(exec, {7, 3}), dy = ones(exec, {5, 7}), gamma = ones(exec, {3});
  Tensor y = exec.empty({5, 7}, DType::float32), dx = exec.empty({5, 3}, DType::float32);
  Tensor dw = exec.zeros({7, 3}, DType::float32), rstd = exec.empty({5}, DType::float32);
  matmul(exec, x, Transpose::no, w, Transpose::yes, y);  // before: not recorded
  Trace trace(10);
  exec.set_trace(&trace);
  matmul(exec, x, Transpose::no, w, Transpose::yes, y);
  matmul(exec, dy, Transpose::no, w, Transpose::no, dx);
  matmul(exec, dy, Transpose::yes, x, Transpose::no, dw, true);
  norm_forward(exec, NormKind::rms_norm, x, gamma, {}, 1e-5, dx, {}, rstd);
  exec.set_trace(nullptr);
  matmul(exec, x, Transpose::no, w, Transpose::yes, y);

  const auto& events = trace.events();
  ASSERT_EQ(events.size(), 4U);
  const char* names[] = {"matmul_forward", "matmul_dgrad", "matmul_wgrad", "norm_forward"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_STREQ(events[i].name, names[i]);
    EXPECT_EQ(events[i].kind, SpanKind::kernel);
    EXPECT_EQ(events[i].work.flops, i < 3 ? 2 * 5 * 3 * 7 : 0);
  }
  EXPECT_EQ(events[0].work.bytes, 4 * (15 + 21 + 35));
  EXPECT_EQ(events[2].work.bytes, 4 * (35 + 15 + 2 * 21));
  EXPECT_EQ(events[3].work.bytes, 4 * (15 + 3 + 15 + 5));
}

TEST(KernelSpan, AttentionTellsVisiblePairsOnly) {
  Executor exec(tensor::Allocator::create(Device::cpu), 1);
  const Tensor q = ones(exec, {4, 2, 8});
  Tensor o = exec.empty({4, 2, 8}, DType::float32), lse = exec.empty({4, 2}, DType::float32);
  const std::vector<std::int64_t> starts = {0, 4};
  Trace trace(1);
  exec.set_trace(&trace);
  attention_forward(exec, {}, {starts, {}, {}, {}}, q, q, q, o, lse);
  exec.set_trace(nullptr);
  ASSERT_EQ(trace.events().size(), 1U);
  EXPECT_EQ(trace.events()[0].work.flops, 2 * 10 * (8 + 8) * 2);  // 10 of the 16 pairs are causal
  EXPECT_EQ(trace.events()[0].work.bytes, 4 * (4 * 64 + 8));
}

}  // namespace
}  // namespace megatron::kernels
