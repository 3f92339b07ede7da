// The place where one rank's thread sleeps until another thread has changed something that it waits for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace megatron::comm {

/// One waiter, any number of wakers. Whoever changes a state that a waiter may look at calls wake() afterwards.
class alignas(64) Parker {
 public:
  /// No system call, and no lock, unless the waiter sleeps.
  void wake() {
    // Sequentially consistent on both sides: either the waiter sees the new epoch, or we see that it sleeps.
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (!sleeping_.load(std::memory_order_seq_cst)) return;
    { const std::lock_guard lock(mutex_); }
    condition_.notify_one();
  }

  /// Returns when `done()` holds; it is asked again after every wake. `spin` = looks at the epoch before sleeping.
  template <typename Done>
  void wait(Done&& done, int spin) {
    for (;;) {
      const std::uint64_t seen = epoch_.load(std::memory_order_acquire);
      if (done()) return;
      for (int i = 0; i < spin && epoch_.load(std::memory_order_acquire) == seen; ++i) relax();
      if (epoch_.load(std::memory_order_acquire) != seen) continue;
      std::unique_lock lock(mutex_);
      sleeping_.store(true, std::memory_order_seq_cst);
      condition_.wait(lock, [&] { return epoch_.load(std::memory_order_seq_cst) != seen; });
      sleeping_.store(false, std::memory_order_relaxed);
    }
  }

  static void relax() {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }

 private:
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<bool> sleeping_{false};
  std::mutex mutex_;
  std::condition_variable condition_;
};

/// Looks before sleeping: some where every rank has a core of its own, none where ranks share cores. Looking lasts
/// longer than waking a core takes (some 50 µs): else two ranks in step could go on sending each other to sleep.
inline int spin_for_ranks(int ranks_on_machine) {
  return ranks_on_machine <= static_cast<int>(std::thread::hardware_concurrency()) ? 4000 : 0;
}

}  // namespace megatron::comm
