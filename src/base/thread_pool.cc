#include "base/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"

namespace megatron {

namespace {
inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}
}  // namespace

struct ThreadPool::State {
  /// Ends the workers that were started.
  void join() {
    {
      const std::lock_guard lock(mutex);
      stop.store(true, std::memory_order_release);
      epoch.fetch_add(1, std::memory_order_acq_rel);
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::atomic<std::uint64_t> epoch{0};
  std::atomic<int> running{0};
  std::atomic<bool> stop{false};
  Task task = nullptr;
  void* context = nullptr;
  int spin = 0;

  void worker(int index) {
    std::uint64_t seen = 0;
    for (;;) {
      std::uint64_t now = epoch.load(std::memory_order_acquire);
      for (int i = 0; i < spin && now == seen; ++i) {
        cpu_relax();
        now = epoch.load(std::memory_order_acquire);
      }
      if (now == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return epoch.load(std::memory_order_acquire) != seen; });
        now = epoch.load(std::memory_order_acquire);
      }
      seen = now;
      if (stop.load(std::memory_order_acquire)) return;
      task(context, index);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int num_threads, int spin) : num_threads_(num_threads), state_(std::make_unique<State>()) {
  state_->spin = spin;
  try {
    for (int i = 1; i < num_threads; ++i) state_->threads.emplace_back([this, i] { state_->worker(i); });
  } catch (const std::exception& error) {
    state_->join();
    throw Error(str_cat("cannot start ", num_threads, " threads: ", error.what(), " after ", state_->threads.size()));
  }
}

ThreadPool::~ThreadPool() { state_->join(); }

void ThreadPool::run(Task task, void* context) {
  if (num_threads_ == 1) {
    task(context, 0);
    return;
  }
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.task = task;
    s.context = context;
    s.running.store(num_threads_ - 1, std::memory_order_release);
    s.epoch.fetch_add(1, std::memory_order_acq_rel);
  }
  s.wake.notify_all();
  task(context, 0);
  for (int i = 0; i < s.spin; ++i) {
    if (s.running.load(std::memory_order_acquire) == 0) return;
    cpu_relax();
  }
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.running.load(std::memory_order_acquire) == 0; });
}

std::int64_t ThreadPool::claim(void* next) {
  return static_cast<std::atomic<std::int64_t>*>(next)->fetch_add(1, std::memory_order_relaxed);
}

void ThreadPool::run_loop(Task task, void* body, std::int64_t count) {
  std::atomic<std::int64_t> next{0};
  Loop loop{count, &next, body};
  run(task, &loop);
}

}  // namespace megatron
