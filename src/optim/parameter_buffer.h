// The values of a rank's parameters in flat buckets, so that a distributed optimizer (arXiv 1910.02054) can update the
// shard that a data-parallel rank owns and gather the rest.
#pragma once

#include <vector>

#include "mesh/mesh.h"
#include "optim/parameter_store.h"

namespace megatron::optim {

/// ZeRO stages 1 and 2: every rank keeps all values. values_changed() launches one gather per bucket, in the order in
/// which forward uses them; a pass waits for the buckets of a unit just before it uses it.
class ParameterBuffer final : public ParameterStore {
 public:
  /// Moves the values of `layout`'s parameters into its buckets (they must not be initialised yet: what they hold is
  /// lost). A tied use that shares its table's memory goes on doing so. `overlap` false: values_changed() waits.
  ParameterBuffer(mesh::Rank& rank, const FlatLayout& layout, bool overlap);

  Tensor owned_value(const ParameterRange& range) const override { return own_part(range).value; }
  void values_changed() override;
  void finish_gathers() override;
  void complete() override { finish_gathers(); }
  bool keeps_shards() const override { return false; }
  void acquire(nn::ParameterUnit unit, nn::ParameterUnit next) override;
  void release(nn::ParameterUnit) override {}

 private:
  void wait_for(std::size_t bucket);

  mesh::Rank& rank_;
  const FlatLayout& layout_;
  bool overlap_;
  std::vector<Tensor> buckets_;  // undefined where a bucket has no values of its own
  std::vector<comm::Pending<Tensor>> gathers_;
  std::vector<bool> under_way_;
};

}  // namespace megatron::optim
