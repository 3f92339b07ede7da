// Failures of one rank made known to all, so that every rank leaves a collective job alike.
#pragma once

#include <exception>
#include <string>

#include "base/check.h"
#include "comm/communicator.h"

namespace megatron::checkpoint {

/// The first failure of this rank, as text; empty while there is none.
class Failure {
 public:
  /// Runs `step` unless there was a failure before, and keeps what it throws. Communication must not happen inside.
  template <typename Step>
  void guard(Step&& step) {
    if (!message_.empty()) return;
    try {
      step();
    } catch (const std::exception& error) {
      message_ = error.what();
      if (message_.empty()) message_ = "unknown failure";
    }
  }
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

/// Collective: throws IoError with the message of the lowest rank that failed, on every rank, if any did.
void agree(comm::Communicator& world, const Failure& failure);
/// The same, but returns the message (empty: no rank failed).
std::string agreed_failure(comm::Communicator& world, const Failure& failure);

}  // namespace megatron::checkpoint
