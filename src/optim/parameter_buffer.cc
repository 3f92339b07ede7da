#include "optim/parameter_buffer.h"

#include <chrono>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace megatron::optim {

ParameterBuffer::ParameterBuffer(mesh::Rank& rank, const FlatLayout& layout, bool overlap)
    : rank_(rank),
      layout_(layout),
      overlap_(overlap),
      buckets_(layout.buckets().size()),
      gathers_(layout.buckets().size()),
      under_way_(layout.buckets().size(), false),
      values_in_(layout.buckets().size()) {
  std::iota(values_in_.begin(), values_in_.end(), std::size_t{0});
  std::vector<nn::Parameter*> sharing;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const FlatBucket& bucket = layout.buckets()[b];
    nn::Parameter* const first = layout.slots()[bucket.slots.front()].parameter;
    if (nn::shares_table(*first, layout.parameters())) {
      sharing.push_back(first);
      continue;
    }
    const DType dtype = first->value.dtype();
    buckets_[b] = rank.exec.zeros(Shape{bucket.end - bucket.begin}, dtype, MemoryKind::parameter);
    for (const std::size_t s : bucket.slots) {
      const FlatSlot& slot = layout.slots()[s];
      const Shape shape = slot.parameter->value.shape();
      slot.parameter->value = Tensor::on_storage(buckets_[b].storage(), slot.offset - bucket.begin, shape, dtype);
    }
  }
  for (nn::Parameter* use : sharing)
    for (const nn::Parameter* table : layout.parameters()) {
      if (table == use || table->name != use->name) continue;
      use->value = table->value;
      values_in_[layout.slot_of(*use).bucket] = layout.slot_of(*table).bucket;
    }
}

void ParameterBuffer::start_gather() {
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
  if (!overlap_) finish_gather();
}

void ParameterBuffer::wait_for(std::size_t bucket) {
  if (!under_way_[bucket]) return;
  const auto start = std::chrono::steady_clock::now();
  gathers_[bucket].wait();
  under_way_[bucket] = false;
  exposed_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void ParameterBuffer::finish_gather() {
  for (std::size_t b = buckets_.size(); b-- > 0;) wait_for(b);
}

void ParameterBuffer::acquire(std::span<nn::Parameter* const> unit) {
  for (const nn::Parameter* parameter : unit) {
    if (!layout_.holds(*parameter)) continue;  // frozen
    wait_for(values_in_[layout_.slot_of(*parameter).bucket]);
  }
}

double ParameterBuffer::take_exposed_seconds() { return std::exchange(exposed_seconds_, 0.0); }

}  // namespace megatron::optim
