// The end of a world before its time: who failed, with which error; the first one wins.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <string>

#include "comm/world.h"

namespace megatron::comm {

/// As megatron::exit_status; 1 for what is no std::exception.
int exit_status_of(const std::exception_ptr& error);
/// what() of a std::exception on one line.
std::string message_of(const std::exception_ptr& error);

/// Shared by all threads of a world in one process. Thread-safe.
class AbortState {
 public:
  /// `on_abort` is called once, by the thread whose abort() won, after aborted() has become true: it wakes all waiters.
  explicit AbortState(std::function<void()> on_abort) : on_abort_(std::move(on_abort)) {}

  /// The first call wins and returns true.
  bool abort(Culprit culprit, std::exception_ptr error, int exit_status);
  bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  /// Throws a CommError that names the culprit and what this rank was doing, if aborted.
  void check(int rank, const std::string& group, const std::string& operation) const;

  // Meaningful once aborted() is true.
  Culprit culprit() const;
  std::exception_ptr error() const;
  int exit_status() const;

 private:
  std::function<void()> on_abort_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  Culprit culprit_;
  std::exception_ptr error_;
  int exit_status_ = 1;
};

}  // namespace megatron::comm
