#include "optim/parameter_store.h"

#include <utility>

#include "base/clock.h"

namespace megatron::optim {

double ParameterStore::take_exposed_seconds() { return std::exchange(exposed_seconds_, 0.0); }

void ParameterStore::wait(comm::Pending<Tensor>& gather) {
  const Clock::time_point start = Clock::now();
  gather.wait();
  exposed_seconds_ += seconds_since(start);
}

}  // namespace megatron::optim
