#include "optim/parameter_buffer.h"

namespace megatron::optim {

ParameterBuffer::ParameterBuffer(mesh::Rank& rank, const FlatLayout& layout, bool overlap)
    : rank_(rank),
      layout_(layout),
      overlap_(overlap),
      buckets_(layout.buckets().size()),
      gathers_(layout.buckets().size()),
      under_way_(layout.buckets().size(), false) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = layout.buckets()[b];
    if (layout.values_bucket(b) != b) continue;
    const DType dtype = layout.slots()[bucket.items.front()].parameter->value.dtype();
    buckets_[b] = rank.exec.zeros(Shape{bucket.end - bucket.begin}, dtype, MemoryKind::parameter);
    for (const std::size_t s : bucket.items) {
      const FlatSlot& slot = layout.slots()[s];
      const Shape shape = slot.parameter->value.shape();
      slot.parameter->value = Tensor::on_storage(buckets_[b].storage(), slot.offset - bucket.begin, shape, dtype);
    }
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const std::size_t s : layout.buckets()[b].items)
      if (const std::size_t table = layout.values_bucket(b); table != b)
        layout.slots()[s].parameter->value = layout.slots()[layout.buckets()[table].items.front()].parameter->value;
}

void ParameterBuffer::values_changed() {
  const mesh::Group& dp = rank_.mesh.dp;
  if (dp.trivial()) return;
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    if (!buckets_[b].defined()) continue;
    const FlatBucket& bucket = layout_.buckets()[b];
    const std::int64_t begin = bucket.shard_begin(dp.rank()) - bucket.begin;
    const std::int64_t size = bucket.shard_sizes[static_cast<std::size_t>(dp.rank())];
    gathers_[b] = dp.communicator()->all_gather(buckets_[b].slice(0, begin, begin + size), bucket.shard_sizes,
                                                buckets_[b], "parameter bucket");
    under_way_[b] = true;
  }
  if (!overlap_) finish_gathers();
}

void ParameterBuffer::wait_for(std::size_t bucket) {
  if (!under_way_[bucket]) return;
  wait(gathers_[bucket]);
  under_way_[bucket] = false;
}

void ParameterBuffer::finish_gathers() {
  for (std::size_t b = buckets_.size(); b-- > 0;) wait_for(b);
}

void ParameterBuffer::acquire(nn::ParameterUnit unit, nn::ParameterUnit) {
  for (const nn::Parameter* parameter : unit) {
    if (!layout_.holds(*parameter)) continue;  // frozen
    wait_for(layout_.values_bucket(layout_.slot_of(*parameter).bucket));
  }
}

}  // namespace megatron::optim
