// What layers tell the outside about the gradients of parameters.
#pragma once

#include "nn/parameter.h"

namespace megatron::nn {

/// Implemented by optim/grad_buffer.h. Called on the rank thread; the sink knows which micro-batch of the step is the
/// last.
class GradSink {
 public:
  virtual ~GradSink() = default;
  /// Before a contribution is written: parameter.main_grad must be there when this returns.
  virtual void prepare(Parameter& parameter) = 0;
  /// After the last contribution of one micro-batch to parameter.main_grad.
  virtual void grad_ready(Parameter& parameter) = 0;
};

}  // namespace megatron::nn
