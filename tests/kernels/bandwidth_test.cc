#include "kernels/bandwidth.h"

#include "kernel_testing.h"
#include "kernels/cpu/bandwidth.h"

namespace megatron::kernels {
namespace {

TEST(Bandwidth, CopiesEveryElementWithBothKindsOfStores) {
  for (const bool past_caches : {false, true})
    for (const std::int64_t size : {std::int64_t{1}, std::int64_t{100}, std::int64_t{40001}}) {
      const std::vector<float> copied = same_everywhere([&](Executor& exec) {
        const Tensor from = random_tensor<float>(exec, {size}, 1);
        Tensor to = exec.zeros({size}, DType::float32);
        cpu::copy_all(exec, from, to, past_caches);
        EXPECT_TRUE(same_bits(values<float>(from), values<float>(to))) << size;
        return values<float>(to);
      });
      EXPECT_EQ(static_cast<std::int64_t>(copied.size()), size);
    }
}

TEST(Bandwidth, IsARateAndTakesNoMemoryOfTheRank) {
  TestExecutor exec(2), meta(1, Device::meta);
  EXPECT_GT(copy_bandwidth(exec, 1 << 20, 2), 0.0);
  EXPECT_EQ(exec.allocator().tracker().peak_total(), 0);
  EXPECT_EQ(copy_bandwidth(meta, 1 << 20, 2), 0.0);
  EXPECT_THROW(copy_bandwidth(exec, 0, 1), Error);
}

}  // namespace
}  // namespace megatron::kernels
