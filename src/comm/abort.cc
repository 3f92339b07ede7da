#include "comm/abort.h"

#include <algorithm>
#include <utility>

#include "base/exit_status.h"

namespace megatron::comm {

int exit_status_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return exit_status(known);
  } catch (...) {
    return 1;
  }
}

std::string message_of(const std::exception_ptr& error) {
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
    text = "unknown exception";
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string failure_line(const Culprit& culprit) {
  return str_cat("rank ", culprit.rank, ", ", culprit.operation, ": ", culprit.message);
}

bool AbortState::abort(Culprit culprit, std::exception_ptr error, int exit_status) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return false;
    culprit_ = std::move(culprit);
    error_ = std::move(error);
    exit_status_ = exit_status;
    aborted_.store(true, std::memory_order_release);
  }
  on_abort_();
  return true;
}

void AbortState::check(int rank, const std::string& group, const std::string& operation) const {
  if (!aborted()) return;
  throw CommError(
      str_cat("rank ", rank, " gave up ", operation, " in ", group, " because of ", failure_line(culprit())));
}

Culprit AbortState::culprit() const {
  const std::lock_guard lock(mutex_);
  return culprit_;
}

std::exception_ptr AbortState::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

int AbortState::exit_status() const {
  const std::lock_guard lock(mutex_);
  return exit_status_;
}

}  // namespace megatron::comm
