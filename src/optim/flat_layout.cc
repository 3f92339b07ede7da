#include "optim/flat_layout.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/optimizer_step.h"

namespace megatron::optim {
namespace {

static_assert(kernels::kNormSegment == spec::kNormSegment);

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

FlatLayout::FlatLayout(std::span<nn::Parameter* const> parameters, const FlatLayoutOptions& options) {
  std::vector<spec::FlatItem> items;
  for (nn::Parameter* parameter : parameters) {
    if (!parameter->trainable) continue;
    MEGATRON_CHECK(index_.emplace(parameter, parameters_.size()).second, parameter->name, " is listed twice");
    parameters_.push_back(parameter);
    MEGATRON_CHECK(parameter->value.dtype() == parameters_.front()->value.dtype(), "dtype of ", parameter->name,
                   " differs from that of ", parameters_.front()->name);
    items.push_back(
        {&parameter->sharding, parameter->value.numel(), options.within_groups ? parameter->bucket_group : 0,
         parameter->tied_use || parameter->shared_embedding, options.indivisible && options.indivisible(*parameter)});
  }
  cut_ = spec::cut_flat(items, options.bucket_size, options.shards);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    slots_.push_back({parameters_[i], cut_.offsets[i], cut_.bucket_of[i]});
  find_values_buckets();
}

void FlatLayout::find_values_buckets() {
  values_buckets_.resize(buckets().size());
  std::iota(values_buckets_.begin(), values_buckets_.end(), std::size_t{0});
  for (const nn::Parameter* use : parameters_) {
    if (!nn::shares_table(*use, parameters_)) continue;
    for (const nn::Parameter* table : parameters_)
      if (table != use && table->name == use->name) values_buckets_[slot_of(*use).bucket] = slot_of(*table).bucket;
  }
}

const FlatSlot& FlatLayout::slot_of(const nn::Parameter& parameter) const {
  const auto it = index_.find(&parameter);
  MEGATRON_CHECK(it != index_.end(), parameter.name, " is not in the flat buffers");
  return slots_[it->second];
}

std::vector<ParameterRange> FlatLayout::owned_ranges(int shard) const {
  std::vector<ParameterRange> ranges;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const spec::HeldRange range = cut_.owned(i, shard);
    if (range.size() > 0) ranges.push_back({parameters_[i], range.begin, range.end});
  }
  return ranges;
}

}  // namespace megatron::optim
