// What layers tell the outside: a gradient is complete.
#pragma once

#include "nn/parameter.h"

namespace megatron::nn {

/// Implemented by optim/grad_buffer.h. Called on the rank thread after the last contribution of one micro-batch to
/// parameter.main_grad; the sink knows which micro-batch of the step is the last.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual void grad_ready(Parameter& parameter) = 0;
};

}  // namespace megatron::nn
