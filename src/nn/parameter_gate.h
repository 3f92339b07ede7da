// How a pass gets the values of parameters that may not be there yet: with a distributed optimizer they are gathered
// just before use.
#pragma once

#include <span>

#include "nn/parameter.h"

namespace megatron::nn {

/// Implemented by optim/parameter_buffer.h. A unit is what is used together: the embedding, one layer, or final norm
/// and head. Called on the rank thread, in the same order on all data-parallel ranks.
class ParameterGate {
 public:
  virtual ~ParameterGate() = default;
  /// Returns when the values of `unit` are there.
  virtual void acquire(std::span<Parameter* const> unit) = 0;
  /// The pass does not need `unit` any more.
  virtual void release(std::span<Parameter* const> unit) = 0;
};

/// Holds a unit while a part of a pass runs. `gate` may be null: values are always there.
class ParameterUse {
 public:
  ParameterUse(ParameterGate* gate, std::span<Parameter* const> unit) : gate_(gate), unit_(unit) {
    if (gate_ != nullptr) gate_->acquire(unit_);
  }
  ~ParameterUse() {
    if (gate_ != nullptr) gate_->release(unit_);
  }
  ParameterUse(const ParameterUse&) = delete;
  ParameterUse& operator=(const ParameterUse&) = delete;

 private:
  ParameterGate* gate_;
  std::span<Parameter* const> unit_;
};

}  // namespace megatron::nn
