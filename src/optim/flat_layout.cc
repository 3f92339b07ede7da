#include "optim/flat_layout.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/units.h"
#include "kernels/optimizer_step.h"

namespace megatron::optim {
namespace {

constexpr std::int64_t kSegment = kernels::kNormSegment;
static_assert(kSegment == spec::kNormSegment);

bool has_own_bucket(const nn::Parameter& parameter) { return parameter.tied_use || parameter.shared_embedding; }

}  // namespace

std::vector<ParameterRange> whole_ranges(std::span<nn::Parameter* const> parameters) {
  std::vector<ParameterRange> ranges;
  for (nn::Parameter* parameter : parameters)
    if (parameter->trainable) ranges.push_back({parameter, 0, parameter->value.numel()});
  return ranges;
}

OwnedPart own_part(const ParameterRange& range) {
  const nn::Parameter& parameter = *range.parameter;
  const auto part = [&](const Tensor& tensor) {
    return tensor.defined() ? tensor.flat().slice(0, range.begin, range.end) : Tensor();
  };
  return {range, part(parameter.main_grad), part(parameter.value)};
}

std::vector<OwnedPart> whole_parts(std::span<nn::Parameter* const> parameters) {
  std::vector<OwnedPart> parts;
  for (const ParameterRange& range : whole_ranges(parameters)) parts.push_back(own_part(range));
  return parts;
}

std::int64_t FlatBucket::shard_begin(int shard) const {
  return std::accumulate(shard_sizes.begin(), shard_sizes.begin() + shard, begin);
}

FlatLayout::FlatLayout(std::span<nn::Parameter* const> parameters, const FlatLayoutOptions& options) {
  MEGATRON_CHECK_GT(options.bucket_size, 0, "elements of a gradient bucket");
  MEGATRON_CHECK_GT(options.shards, 0, "shards of a bucket");
  for (nn::Parameter* parameter : parameters)
    if (parameter->trainable) parameters_.push_back(parameter);
  std::int64_t end = 0;
  bool open = false;
  for (auto it = parameters_.rbegin(); it != parameters_.rend(); ++it) {
    const nn::Parameter& parameter = **it;
    MEGATRON_CHECK(parameter.value.dtype() == parameters_.front()->value.dtype(), "dtype of ", parameter.name,
                   " differs from that of ", parameters_.front()->name);
    const bool new_group =
        options.within_groups && !slots_.empty() && slots_.back().parameter->bucket_group != parameter.bucket_group;
    if (!open || new_group || has_own_bucket(parameter)) {
      if (!buckets_.empty()) {
        close_bucket(end, options.shards, options.indivisible);
        end = buckets_.back().end;
      }
      buckets_.push_back({end, end, {}, {}});
    }
    FlatBucket& bucket = buckets_.back();
    MEGATRON_CHECK(index_.emplace(&parameter, slots_.size()).second, parameter.name, " is listed twice");
    bucket.slots.push_back(slots_.size());
    slots_.push_back({*it, end, buckets_.size() - 1});
    const std::int64_t used = end + parameter.value.numel() - bucket.begin;  // without the gap behind it
    end = round_up(end + parameter.value.numel(), kSegment);
    open = !has_own_bucket(parameter) && used < options.bucket_size;
  }
  if (!buckets_.empty()) close_bucket(end, options.shards, options.indivisible);
  find_values_buckets();
}

void FlatLayout::find_values_buckets() {
  values_buckets_.resize(buckets_.size());
  std::iota(values_buckets_.begin(), values_buckets_.end(), std::size_t{0});
  for (const nn::Parameter* use : parameters_) {
    if (!nn::shares_table(*use, parameters_)) continue;
    for (const nn::Parameter* table : parameters_)
      if (table != use && table->name == use->name) values_buckets_[slot_of(*use).bucket] = slot_of(*table).bucket;
  }
}

void FlatLayout::close_bucket(std::int64_t end, int shards, const Indivisible& indivisible) {
  FlatBucket& bucket = buckets_.back();
  const std::int64_t share = round_up(ceil_div(end - bucket.begin, shards), kSegment);
  bucket.end = bucket.begin + share * shards;
  std::int64_t from = bucket.begin;
  for (int shard = 1; shard <= shards; ++shard) {
    const std::int64_t to = shard == shards ? bucket.end : cut_at(bucket, bucket.begin + shard * share, indivisible);
    bucket.shard_sizes.push_back(to - from);
    from = to;
  }
}

std::int64_t FlatLayout::cut_at(const FlatBucket& bucket, std::int64_t place, const Indivisible& indivisible) const {
  for (const std::size_t s : bucket.slots) {
    const FlatSlot& slot = slots_[s];
    if (place <= slot.offset || place >= slot.offset + slot.parameter->value.numel()) continue;
    if (indivisible && indivisible(*slot.parameter)) return slot.offset;
    return slot.offset + segment_begin(slot.parameter->sharding, place - slot.offset);
  }
  return place;
}

const FlatSlot& FlatLayout::slot_of(const nn::Parameter& parameter) const {
  const auto it = index_.find(&parameter);
  MEGATRON_CHECK(it != index_.end(), parameter.name, " is not in the flat buffers");
  return slots_[it->second];
}

std::vector<ParameterRange> FlatLayout::owned_ranges(int shard) const {
  std::vector<ParameterRange> ranges;
  for (nn::Parameter* parameter : parameters_) {
    const FlatSlot& slot = slot_of(*parameter);
    const FlatBucket& bucket = buckets_[slot.bucket];
    const std::int64_t first = bucket.shard_begin(shard);
    const std::int64_t last = first + bucket.shard_sizes[static_cast<std::size_t>(shard)];
    const std::int64_t begin = std::clamp<std::int64_t>(first - slot.offset, 0, parameter->value.numel());
    const std::int64_t end = std::clamp<std::int64_t>(last - slot.offset, 0, parameter->value.numel());
    if (begin < end) ranges.push_back({parameter, begin, end});
  }
  return ranges;
}

}  // namespace megatron::optim
