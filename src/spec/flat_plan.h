// The parameters of a pipeline rank as they lie in its flat buffers, from the description alone: which of them share a
// bucket, what padding comes between them, and which part of a bucket each data-parallel rank owns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/flat_cut.h"
#include "spec/run_spec.h"
#include "spec/sharding.h"

namespace megatron::spec {

/// One parameter of a rank. Its gradient may still have to be summed over the tensor-parallel group.
struct HeldParameter {
  enum class Sum : std::uint8_t { none, whole, shared_rows };
  std::string name;
  Sharding sharding;  // of the first tensor-parallel rank; those of the others have the same sizes
  int stage = 0;      // virtual stage
  int unit = 0;       // embedding, each layer, final norm, head: counted within the rank
  Sum sum = Sum::none;
  bool tied_use = false;          // the head's use of a tied table
  bool shared_embedding = false;  // the lookup's use of one
  bool shares_memory = false;     // has the value of the table on the same rank
  bool muon = false;              // updated as a whole matrix

  std::int64_t numel() const { return sharding.local_numel(); }
};

/// In forward order. `run` must be complete.
std::vector<HeldParameter> held_parameters(const RunSpec& run, int pipeline_rank);

/// The cut of `parameters`.
struct FlatPlan : FlatCut {
  std::vector<HeldParameter> parameters;
  /// The bucket's values are those of another bucket.
  bool shares_memory(const Bucket& bucket) const { return parameters[bucket.items.back()].shares_memory; }
};

/// `shards`: the data-parallel ranks that own a part each, 1 where every rank has all.
FlatPlan flat_plan(const RunSpec& run, int pipeline_rank, int shards);
/// What data-parallel ranks share; nothing where there is one.
ShardingStrategy effective_sharding(const RunSpec& run);
/// The number of owners of a run's optimizer states.
int optimizer_shards(const RunSpec& run);
/// Gradients are reduced over data parallelism after every micro-batch; then a bucket holds one unit's parameters.
bool reduces_every_micro_batch(const RunSpec& run);

}  // namespace megatron::spec
