#include "optim/parameter_store.h"

#include <chrono>
#include <utility>

namespace megatron::optim {

double ParameterStore::take_exposed_seconds() { return std::exchange(exposed_seconds_, 0.0); }

void ParameterStore::wait(comm::Pending<Tensor>& gather) {
  const auto start = std::chrono::steady_clock::now();
  gather.wait();
  exposed_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace megatron::optim
