// Tensors that others may still read or write although their rank has left the operation.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace megatron::comm {

/// Owned and emptied by the rank's own thread, for the allocator is single-threaded.
class KeptTensors {
 public:
  void keep(std::function<bool()> released, std::vector<Tensor> tensors) {
    kept_.push_back({std::move(released), std::move(tensors)});
  }
  /// Drops what has been released since.
  void sweep() {
    if (kept_.empty()) return;
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(), [](const Entry& entry) { return entry.released(); }),
                kept_.end());
  }
  void clear() { kept_.clear(); }

 private:
  struct Entry {
    std::function<bool()> released;
    std::vector<Tensor> tensors;
  };
  std::vector<Entry> kept_;
};

}  // namespace megatron::comm
