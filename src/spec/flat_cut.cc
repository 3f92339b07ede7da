#include "spec/flat_cut.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"

namespace megatron::spec {
namespace {

class Cutter {
 public:
  Cutter(std::span<const FlatItem> items, std::int64_t bucket_size, int shards)
      : items_(items), bucket_size_(bucket_size), shards_(shards) {
    cut_.numel.resize(items.size());
    cut_.offsets.resize(items.size());
    cut_.bucket_of.resize(items.size());
  }

  FlatCut run() {
    for (std::size_t i = items_.size(); i-- > 0;) place(i);
    if (!cut_.buckets.empty()) close_bucket();
    return std::move(cut_);
  }

 private:
  void place(std::size_t i) {
    const FlatItem& item = items_[i];
    if (!open_ || item.own_bucket || item.group != group_) {
      if (!cut_.buckets.empty()) close_bucket();
      cut_.buckets.push_back({end_, end_, {}, {}, {}});
    }
    FlatCut::Bucket& bucket = cut_.buckets.back();
    bucket.items.push_back(i);
    cut_.numel[i] = item.numel;
    cut_.offsets[i] = end_;
    cut_.bucket_of[i] = cut_.buckets.size() - 1;
    const std::int64_t used = end_ + item.numel - bucket.begin;  // without the gap behind it
    end_ = round_up(end_ + item.numel, kNormSegment);
    open_ = !item.own_bucket && used < bucket_size_;
    group_ = item.group;
  }

  void close_bucket() {
    FlatCut::Bucket& bucket = cut_.buckets.back();
    const std::int64_t share = round_up(ceil_div(end_ - bucket.begin, shards_), kNormSegment);
    bucket.end = end_ = bucket.begin + share * shards_;
    std::int64_t from = bucket.begin;
    for (int shard = 1; shard <= shards_; ++shard) {
      const std::int64_t to = shard == shards_ ? bucket.end : cut_at(bucket, bucket.begin + shard * share);
      bucket.shard_sizes.push_back(to - from);
      bucket.shard_begins.push_back(from);
      from = to;
    }
  }

  std::int64_t cut_at(const FlatCut::Bucket& bucket, std::int64_t place) const {
    for (const std::size_t i : bucket.items) {
      const std::int64_t offset = cut_.offsets[i];
      if (place <= offset || place >= offset + items_[i].numel) continue;
      return items_[i].indivisible ? offset : offset + segment_begin(*items_[i].sharding, place - offset);
    }
    return place;
  }

  std::span<const FlatItem> items_;
  std::int64_t bucket_size_;
  int shards_;
  FlatCut cut_;
  std::int64_t end_ = 0;
  bool open_ = false;
  std::int64_t group_ = 0;
};

}  // namespace

std::int64_t segment_begin(const Sharding& sharding, std::int64_t index) {
  const std::int64_t row = index / sharding.local_cols, col = index % sharding.local_cols;
  if (sharding.num_dims > 1) return row * sharding.local_cols + col / kNormSegment * kNormSegment;
  // 1-D: segments count from the logical begin of the tensor, and pieces begin new ones.
  for (const Piece& piece : sharding.pieces) {
    if (index < piece.local_row || index >= piece.local_row + piece.global.rows) continue;
    const std::int64_t logical = piece.global.row + index - piece.local_row;
    return std::max(piece.local_row, index - logical % kNormSegment);
  }
  return index;  // padding, which no norm counts
}

HeldRange FlatCut::owned(std::size_t item, int shard) const {
  const Bucket& bucket = buckets[bucket_of[item]];
  const std::int64_t first = bucket.shard_begin(shard) - offsets[item];
  const std::int64_t last = first + bucket.shard_sizes[static_cast<std::size_t>(shard)];
  return {std::clamp<std::int64_t>(first, 0, numel[item]), std::clamp<std::int64_t>(last, 0, numel[item])};
}

FlatCut cut_flat(std::span<const FlatItem> items, std::int64_t bucket_size, int shards) {
  MEGATRON_CHECK_GT(bucket_size, 0, "elements of a gradient bucket");
  MEGATRON_CHECK_GT(shards, 0, "shards of a bucket");
  return Cutter(items, bucket_size, shards).run();
}

}  // namespace megatron::spec
