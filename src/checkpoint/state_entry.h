// One tensor of a run's state as the checkpoint sees it: a name, a logical shape, the boxes that this rank holds.
#pragma once

#include <string>
#include <vector>

#include "spec/sharding.h"
#include "tensor/tensor.h"

namespace megatron::checkpoint {

struct StateEntry {
  std::string name;         // "decoder.layers.0.mlp.linear_fc1.weight", "optimizer.exp_avg.decoder…"
  spec::Sharding sharding;  // pieces of this rank; owned pieces are the ones it may write
  /// True on the ranks that hold the entry for writing (one data-parallel replica, not the tied copy); others only
  /// read.
  bool writer = false;
  Tensor tensor;  // local shard [local_rows(, local_cols)]
};

}  // namespace megatron::checkpoint
