#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "base/check.h"

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

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Threads that the machine does not give are an error, and those that were started end.
TEST(ThreadPool, TooManyThreadsAreRefused) {
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = rlim_t{1} << 30;
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(100'000, 0);
    } catch (const Error& error) {
      ::_exit(std::string(error.what()).rfind("cannot start 100000 threads: ", 0) == 0 ? 7 : 1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}
#endif

}  // namespace
}  // namespace megatron
