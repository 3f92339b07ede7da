// How tensors lie one behind the other in flat buffers: bucket by bucket, with padding between them, each bucket cut
// into parts for its owners. One algorithm for buffers that exist and for those that a description predicts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/sharding.h"

namespace megatron::spec {

/// Elements whose squares a norm adds in one go (kernels::kNormSegment).
inline constexpr std::int64_t kNormSegment = 64;
/// Begin of the segment of squares (counted within each logical row, or within a 1-D tensor) that holds local element
/// `index` of a shard: the largest begin ≤ index.
std::int64_t segment_begin(const Sharding& sharding, std::int64_t index);

/// A tensor that is to lie in a buffer.
struct FlatItem {
  const Sharding* sharding = nullptr;  // not null; read while the cut is made, not kept
  std::int64_t numel = 0;
  std::int64_t group = 0;    // a bucket holds one group; 0 everywhere: buckets care for their size only
  bool own_bucket = false;   // shares a bucket with nothing
  bool indivisible = false;  // one owner has all of it
};

/// Elements [begin, end) of a tensor.
struct HeldRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

struct FlatCut {
  struct Bucket {
    std::int64_t begin = 0, end = 0;        // elements of the buffer, padding included
    std::vector<std::size_t> items;         // in buffer order
    std::vector<std::int64_t> shard_sizes;  // elements of each owner; they add up to end − begin
    std::vector<std::int64_t> shard_begins;
    std::int64_t size() const { return end - begin; }
    std::int64_t shard_begin(int shard) const { return shard_begins[static_cast<std::size_t>(shard)]; }
  };
  std::vector<std::int64_t> numel, offsets;  // of each item
  std::vector<std::size_t> bucket_of;        // of each item
  std::vector<Bucket> buckets;               // in buffer order: the last items come first
  std::int64_t num_elements() const { return buckets.empty() ? 0 : buckets.back().end; }
  /// What `shard` owns of an item; empty ranges have begin = end.
  HeldRange owned(std::size_t item, int shard) const;
};

/// Items, given in forward order, lie in reverse order (as backward produces gradients), each starting at a multiple of
/// kNormSegment; a bucket closes when it has `bucket_size` elements, where the group changes, and around an item with a
/// bucket of its own. A bucket is padded to a multiple of kNormSegment per owner and cut into `shards` equal parts,
/// except that no cut divides a segment whose squares the norm adds in one go: such a cut moves down to the segment's
/// begin, or to the item's where that is indivisible. bucket_size and shards are positive.
FlatCut cut_flat(std::span<const FlatItem> items, std::int64_t bucket_size, int shards);

}  // namespace megatron::spec
