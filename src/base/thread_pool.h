// The worker threads of one rank: parked between calls, woken for one parallel loop at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace megatron {

class ThreadPool {
 public:
  /// A pool of `num_threads` ≥ 1 threads, the caller of `run` among them. `spin` = how many times an idle worker looks
  /// for work before it sleeps (0 where ranks share cores).
  explicit ThreadPool(int num_threads, int spin = 2000);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  /// Calls `task(context, worker)` once on every thread (worker 0 is the caller) and returns when all are done.
  /// The task must not throw.
  using Task = void (*)(void* context, int worker);
  void run(Task task, void* context);

  /// Calls `body(index, worker)` for each index in [0, count), claimed one at a time by any thread. What is computed
  /// may depend on the index only; so results do not depend on the number of threads.
  template <typename Body>
  void parallel_for(std::int64_t count, Body&& body);

 private:
  struct State;
  struct Loop {
    std::int64_t count;
    void* next;  // std::atomic<std::int64_t>*
    void* body;
  };
  static std::int64_t claim(void* next);
  void run_loop(Task task, void* body, std::int64_t count);

  template <typename Body>
  static void loop_entry(void* context, int worker) {
    auto* loop = static_cast<Loop*>(context);
    for (std::int64_t i = claim(loop->next); i < loop->count; i = claim(loop->next))
      (*static_cast<Body*>(loop->body))(i, worker);
  }

  int num_threads_;
  std::unique_ptr<State> state_;
};

template <typename Body>
void ThreadPool::parallel_for(std::int64_t count, Body&& body) {
  if (num_threads_ == 1 || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  using Stored = std::remove_reference_t<Body>;
  run_loop(&loop_entry<Stored>, const_cast<void*>(static_cast<const void*>(&body)), count);
}

}  // namespace megatron
