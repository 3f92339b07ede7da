// The parameters of a pipeline rank as they lie in its flat buffers, from the description alone: which of them share a
// bucket, what padding comes between them, and which part of a bucket each data-parallel rank owns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// Elements whose squares a norm adds in one go (kernels::kNormSegment).
inline constexpr std::int64_t kNormSegment = 64;
/// Begin of the segment of squares (counted within each logical row, or within a 1-D tensor) that holds local element
/// `index` of a shard: the largest begin ≤ index.
std::int64_t segment_begin(const Sharding& sharding, std::int64_t index);

/// Elements [begin, end) of a parameter.
struct HeldRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

struct FlatPlan {
  struct Bucket {
    std::int64_t begin = 0, end = 0;        // elements, padding included
    std::vector<std::size_t> parameters;    // in buffer order
    std::vector<std::int64_t> shard_sizes;  // add up to end − begin
    bool shares_memory = false;             // its values are those of another bucket
    std::int64_t size() const { return end - begin; }
  };
  std::vector<HeldParameter> parameters;
  std::vector<std::int64_t> offsets;   // of each parameter
  std::vector<std::size_t> bucket_of;  // of each parameter
  std::vector<Bucket> buckets;         // in buffer order: the last parameters come first
  std::int64_t num_elements() const { return buckets.empty() ? 0 : buckets.back().end; }
  /// What `shard` owns of a parameter; empty ranges have begin = end.
  HeldRange owned(std::size_t parameter, int shard) const;
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
