// How a pass gets the values of parameters that may not be there yet: at ZeRO stages 1 and 2 a gather may still be
// under way, at stage 3 it starts one unit ahead.
#pragma once

#include <span>

#include "nn/parameter.h"

namespace megatron::nn {

using ParameterUnit = std::span<Parameter* const>;

/// Implemented by optim/parameter_store.h. A unit is what is used together: the embedding, one layer, or final norm
/// and head. Called on the rank thread, in the same order on all data-parallel ranks.
class ParameterGate {
 public:
  virtual ~ParameterGate() = default;
  /// Returns when the values of `unit` are there. `next` (may be empty) is what the pass acquires next.
  virtual void acquire(ParameterUnit unit, ParameterUnit next) = 0;
  /// As often as acquire(): the pass does not need `unit` any more.
  virtual void release(ParameterUnit unit) = 0;
};

/// Holds a unit while a part of a pass runs. `gate` may be null: values are always there.
class ParameterUse {
 public:
  ParameterUse(ParameterGate* gate, ParameterUnit unit, ParameterUnit next = {}) : gate_(gate), unit_(unit) {
    if (gate_ != nullptr) gate_->acquire(unit_, next);
  }
  ~ParameterUse() {
    if (gate_ != nullptr) gate_->release(unit_);
  }
  ParameterUse(const ParameterUse&) = delete;
  ParameterUse& operator=(const ParameterUse&) = delete;

 private:
  ParameterGate* gate_;
  ParameterUnit unit_;
};

}  // namespace megatron::nn
