// The values of a rank's parameters as shards: a unit's values are gathered just before a pass uses them and released
// after (ZeRO stage 3, arXiv 1910.02054).
#pragma once

#include <vector>

#include "mesh/mesh.h"
#include "optim/parameter_store.h"

namespace megatron::optim {

/// Values of a released parameter are on meta: a shape without memory. While one unit is used the next one of the pass
/// is being gathered; so two units have their values at a time, or a whole group of recomputed layers and one more.
class ParameterShards final : public ParameterStore {
 public:
  /// Takes the values of `layout`'s parameters away (they must not be initialised yet) and keeps this rank's shard of
  /// each bucket instead. Units must not share buckets (FlatLayoutOptions::within_groups). `overlap` false: nothing is
  /// gathered ahead.
  ParameterShards(mesh::Rank& rank, const FlatLayout& layout, bool overlap);

  Tensor owned_value(const ParameterRange& range) const override;
  void values_changed() override;
  void finish_gathers() override {}  // every pass has waited for its own
  void complete() override;
  bool keeps_shards() const override { return true; }
  void acquire(nn::ParameterUnit unit, nn::ParameterUnit next) override;
  void release(nn::ParameterUnit unit) override;

 private:
  struct Values {
    Tensor shard;  // undefined where the values are in another bucket
    Tensor whole;  // while gathered
    comm::Pending<Tensor> gather;
    bool under_way = false;
    std::int64_t users = 0;
  };

  /// Buckets with the values of a unit, each once, in forward order.
  std::vector<std::size_t> buckets_of(nn::ParameterUnit unit) const;
  void start(std::size_t bucket);
  void finish(std::size_t bucket);
  void drop(std::size_t bucket);
  /// Sets the values of all parameters whose values are in `bucket`: to places in `whole`, or to meta.
  void point_into(std::size_t bucket, const Tensor& whole);

  mesh::Rank& rank_;
  const FlatLayout& layout_;
  bool overlap_;
  std::vector<Values> values_;     // of each bucket
  std::vector<Tensor> released_;   // of each slot of the layout: what its value is between uses
  std::vector<std::size_t> held_;  // buckets that complete() acquired
};

}  // namespace megatron::optim
