// Signals as flags: a thread of the process waits for them, ranks ask between steps. Nothing runs in a signal handler.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "base/check.h"

namespace megatron::train {

/// From construction to destruction SIGTERM, SIGINT and SIGUSR1 are blocked in the constructing thread and in all
/// threads made by it later, and taken by a thread of this object: the first one is kept for `received()`; the second
/// one ends the process at once with exit status 128 + number. Make it before any other thread.
class SignalWatcher {
 public:
  /// `announce`: say on stderr that a signal has come. A launcher hands its signals to all processes: one says it.
  explicit SignalWatcher(bool announce = true);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  /// Number of the first signal, 0 if none has come.
  int received() const { return received_.load(std::memory_order_relaxed); }
  /// From now on signals are taken and ignored: the run has ended or failed, the process is on its way out. Without
  /// this a launcher's signal could cut off the last words. Thread-safe.
  void finish() { finished_.store(true, std::memory_order_relaxed); }
  /// The flag itself, for those who only read it.
  const std::atomic<int>& flag() const { return received_; }

 private:
  void watch();

  bool announce_;
  std::atomic<int> received_{0};
  std::atomic<bool> finished_{false};
  int wake_[2] = {-1, -1};
  int signal_descriptor_ = -1;
  std::thread thread_;
};

/// Work before the first step was ended by a signal.
class Interrupted : public Error {
 public:
  explicit Interrupted(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

/// "SIGTERM", "SIGINT", "SIGUSR1", or the number.
std::string signal_name(int number);

}  // namespace megatron::train
