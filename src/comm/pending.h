// A communication that may still be under way: waits once, then gives its tensors back.
#pragma once

#include <memory>
#include <utility>

#include "base/check.h"

namespace megatron::comm {

/// What an operation of a world looks like from outside. Completion is observed by the rank that posted it.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Blocks until done; throws CommError when the world has been aborted.
  virtual void wait() = 0;
  virtual bool ready() = 0;
};

/// Move-only; owns the result (and keeps the inputs alive through the operation). A Pending that is destroyed without
/// wait() waits in its destructor unless the stack is being unwound.
template <typename T>
class Pending {
 public:
  Pending() = default;
  /// Already done.
  explicit Pending(T value) : value_(std::move(value)) {}
  Pending(std::unique_ptr<Operation> operation, T value) : operation_(std::move(operation)), value_(std::move(value)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  bool ready() { return operation_ == nullptr || operation_->ready(); }
  T wait() {
    if (operation_ != nullptr) {
      operation_->wait();
      operation_.reset();
    }
    return std::move(value_);
  }

 private:
  std::unique_ptr<Operation> operation_;
  T value_{};
};

}  // namespace megatron::comm
