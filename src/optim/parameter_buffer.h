// The values of a rank's parameters in flat buckets, so that a distributed optimizer (arXiv 1910.02054) can update the
// shard that a data-parallel rank owns and gather the rest.
#pragma once

#include <vector>

#include "mesh/mesh.h"
#include "nn/parameter_gate.h"
#include "optim/flat_layout.h"

namespace megatron::optim {

/// Stage 1: every rank keeps all values. start_gather() after an update launches one gather per bucket, in the order in
/// which forward uses them; a pass waits for the buckets of a unit just before it uses it. Values are bitwise those
/// that their owners computed.
class ParameterBuffer final : public nn::ParameterGate {
 public:
  /// Moves the values of `layout`'s parameters into its buckets (they must not be initialised yet: what they hold is
  /// lost). A tied use that shares its table's memory goes on doing so. `overlap` false: start_gather() waits.
  ParameterBuffer(mesh::Rank& rank, const FlatLayout& layout, bool overlap);

  /// Launches the gathers of all buckets. Collective over dp.
  void start_gather();
  /// Waits for everything that was launched: before values are read outside of a pass (evaluation, saving, norms).
  void finish_gather();
  void acquire(std::span<nn::Parameter* const> unit) override;
  void release(std::span<nn::Parameter* const>) override {}

  /// Seconds that passes and finish_gather() waited since the last call.
  double take_exposed_seconds();

 private:
  void wait_for(std::size_t bucket);

  mesh::Rank& rank_;
  const FlatLayout& layout_;
  bool overlap_;
  std::vector<Tensor> buckets_;  // undefined where a bucket has no values of its own
  std::vector<comm::Pending<Tensor>> gathers_;
  std::vector<bool> under_way_;
  /// The bucket with the values of each bucket's parameters: its own, or the table's for the head's use of it.
  std::vector<std::size_t> values_in_;
  double exposed_seconds_ = 0.0;
};

}  // namespace megatron::optim
