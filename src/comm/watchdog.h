// The thread of a process that ends what hangs: ranks that wait too long, and ranks that do not come back after an
// abort.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/abort.h"
#include "comm/rank_status.h"

namespace megatron::comm {

/// A row of the table that is printed when time is up.
struct RankRow {
  int rank = 0;
  bool known = true;  // false: the rank's process has not answered
  RankRecord record;
};
/// The table of all ranks, one line each under a headline.
std::string progress_table(const std::vector<RankRow>& rows);

/// Time is counted in ticks of the thread itself, so a process that was stopped and goes on has not lost its time.
class Watchdog {
 public:
  struct Means {
    double timeout_seconds = 600;
    std::string timeout_option;
    double grace_seconds = 2;
    bool print = true;
    const std::atomic<int>* stop_signal = nullptr;         // ≠ 0: look for silent processes at once; null: never
    std::vector<std::pair<int, const RankStatus*>> ranks;  // of this process
    std::function<std::vector<RankRow>()> all_rows;        // of the whole world, as far as they answer
    /// Aborts the world; prints `table` and the failure line if this failure is the first.
    std::function<void(const Culprit&, const std::exception_ptr&, const std::string& table)> fail;
    std::function<void(int exit_status)> end_process;  // does not return
  };

  /// `abort` and everything in `means` must outlive the watchdog.
  Watchdog(Means means, const AbortState& abort);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Looks at once: the world has been aborted.
  void notify();

 private:
  struct Waited {
    std::uint64_t serial = 0;
    double seconds = 0;
  };
  void loop();
  void look(double elapsed);
  void look_for_silent(double elapsed);
  void expire(int rank, const RankRecord& record, double seconds);
  void end_after_grace();

  Means means_;
  const AbortState& abort_;
  std::vector<Waited> waited_;
  double since_abort_ = 0;
  double until_question_ = 0;  // after a signal: when all are asked next
  std::vector<int> silent_;    // who did not answer last time
  double since_expired_ = 0;
  std::optional<Culprit> expired_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  bool notified_ = false;
  std::thread thread_;
};

}  // namespace megatron::comm
