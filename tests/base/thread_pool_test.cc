#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace megatron {
namespace {

TEST(ThreadPool, VisitsEveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    for (const int spin : {0, 2000}) {
      ThreadPool pool(threads, spin);
      for (int round = 0; round < 50; ++round) {
        std::vector<std::atomic<int>> seen(97);
        pool.parallel_for(97, [&](std::int64_t i, int) { seen[static_cast<std::size_t>(i)].fetch_add(1); });
        for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
      }
    }
  }
}

}  // namespace
}  // namespace megatron
