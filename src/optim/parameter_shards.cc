#include "optim/parameter_shards.h"

#include <algorithm>

#include "base/check.h"

namespace megatron::optim {

ParameterShards::ParameterShards(mesh::Rank& rank, const FlatLayout& layout, bool overlap)
    : rank_(rank), layout_(layout), overlap_(overlap), values_(layout.buckets().size()) {
  const auto meta = tensor::Allocator::create(Device::meta);
  for (const FlatSlot& slot : layout.slots()) {
    Tensor& value = slot.parameter->value;
    released_.push_back(Tensor::empty(*meta, value.shape(), value.dtype(), MemoryKind::parameter));
    value = released_.back();
  }
  for (std::size_t b = 0; b < values_.size(); ++b) {
    if (layout.values_bucket(b) != b) continue;
    const FlatBucket& bucket = layout.buckets()[b];
    const std::int64_t size = bucket.shard_sizes.at(static_cast<std::size_t>(rank.mesh.dp.rank()));
    values_[b].shard = rank.exec.zeros(Shape{size}, layout.slots()[bucket.items.front()].parameter->value.dtype(),
                                       MemoryKind::parameter);
  }
}

Tensor ParameterShards::owned_value(const ParameterRange& range) const {
  const FlatSlot& slot = layout_.slot_of(*range.parameter);
  // A tied use lies in its bucket as the table does in its own.
  const std::int64_t begin =
      slot.offset + range.begin - layout_.buckets()[slot.bucket].shard_begin(rank_.mesh.dp.rank());
  return values_[layout_.values_bucket(slot.bucket)].shard.slice(0, begin, begin + range.size());
}

std::vector<std::size_t> ParameterShards::buckets_of(nn::ParameterUnit unit) const {
  std::vector<std::size_t> buckets;
  for (const nn::Parameter* parameter : unit) {
    if (!layout_.holds(*parameter)) continue;  // frozen
    const std::size_t bucket = layout_.values_bucket(layout_.slot_of(*parameter).bucket);
    if (std::find(buckets.begin(), buckets.end(), bucket) == buckets.end()) buckets.push_back(bucket);
  }
  return buckets;
}

void ParameterShards::start(std::size_t bucket) {
  Values& values = values_[bucket];
  if (values.whole.defined()) return;
  const FlatBucket& range = layout_.buckets()[bucket];
  values.whole = rank_.exec.empty(Shape{range.end - range.begin}, values.shard.dtype(), MemoryKind::parameter);
  values.gather =
      rank_.mesh.dp.communicator()->all_gather(values.shard, range.shard_sizes, values.whole, "parameter bucket");
  values.under_way = true;
}

void ParameterShards::finish(std::size_t bucket) {
  Values& values = values_[bucket];
  if (!values.under_way) return;
  wait(values.gather);
  values.under_way = false;
  point_into(bucket, values.whole);
}

void ParameterShards::drop(std::size_t bucket) {
  point_into(bucket, {});
  values_[bucket].whole.reset();
}

void ParameterShards::point_into(std::size_t bucket, const Tensor& whole) {
  for (std::size_t s = 0; s < layout_.slots().size(); ++s) {
    const FlatSlot& slot = layout_.slots()[s];
    if (layout_.values_bucket(slot.bucket) != bucket) continue;
    slot.parameter->value =
        whole.defined() ? Tensor::on_storage(whole.storage(), slot.offset - layout_.buckets()[slot.bucket].begin,
                                             released_[s].shape(), whole.dtype())
                        : released_[s];
  }
}

void ParameterShards::acquire(nn::ParameterUnit unit, nn::ParameterUnit next) {
  const std::vector<std::size_t> buckets = buckets_of(unit);
  for (const std::size_t bucket : buckets) {
    ++values_[bucket].users;
    start(bucket);
  }
  if (overlap_)
    for (const std::size_t bucket : buckets_of(next)) start(bucket);
  for (const std::size_t bucket : buckets) finish(bucket);
}

void ParameterShards::release(nn::ParameterUnit unit) {
  for (const std::size_t bucket : buckets_of(unit)) {
    MEGATRON_CHECK_GT(values_[bucket].users, 0, "uses of a bucket of parameters");
    if (--values_[bucket].users == 0) drop(bucket);
  }
}

void ParameterShards::complete() {
  if (!held_.empty()) return;
  for (std::size_t b = values_.size(); b-- > 0;) {
    if (!values_[b].shard.defined()) continue;
    ++values_[b].users;
    start(b);
    held_.push_back(b);
  }
  for (const std::size_t bucket : held_) finish(bucket);
}

void ParameterShards::values_changed() {
  for (const std::size_t bucket : held_)
    if (--values_[bucket].users == 0) drop(bucket);
  held_.clear();
}

}  // namespace megatron::optim
