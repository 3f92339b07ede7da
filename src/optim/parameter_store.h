// Where the values of a rank's parameters live when data-parallel ranks share out their update: whole between passes
// (parameter_buffer.h) or in shards (parameter_shards.h).
#pragma once

#include "comm/pending.h"
#include "nn/parameter_gate.h"
#include "optim/flat_layout.h"

namespace megatron::optim {

/// Values are bitwise those that their owners computed. values_changed(), finish_gathers(), complete()
/// and acquire() are collective over dp.
class ParameterStore : public nn::ParameterGate {
 public:
  /// The value of a range that this rank owns, flat; the same memory for good.
  virtual Tensor owned_value(const ParameterRange& range) const = 0;
  /// After an update of the owned values.
  virtual void values_changed() = 0;
  /// Waits for what was launched; owned values may be written, and whole ones that a rank keeps may be read.
  virtual void finish_gathers() = 0;
  /// Every parameter's value is there when this returns, until values_changed().
  virtual void complete() = 0;
  /// Between passes and updates a rank has its shards alone.
  virtual bool keeps_shards() const = 0;

  /// Seconds that passes and complete() waited since the last call.
  double take_exposed_seconds();

 protected:
  void wait(comm::Pending<Tensor>& gather);

 private:
  double exposed_seconds_ = 0.0;
};

}  // namespace megatron::optim
