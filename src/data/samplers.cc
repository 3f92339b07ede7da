#include "data/samplers.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/check.h"

namespace megatron::data {

std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed) {
  MEGATRON_CHECK(n >= 0 && n <= 0xffffffffLL, "a permutation of ", n, " samples is not offered");
  std::mt19937 engine(static_cast<std::uint32_t>(seed));
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  for (std::int64_t i = 0; i < n - 1; ++i) {
    const auto other = i + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n - i));
    std::swap(values[static_cast<std::size_t>(i)], values[static_cast<std::size_t>(other)]);
  }
  return values;
}

std::int64_t SequentialOrder::dataset_index(std::int64_t global_index) const {
  MEGATRON_CHECK_GE(global_index, 0);
  if (global_index >= total_samples_)
    throw Error(str_cat("no samples left to consume: sample ", global_index, " of ", total_samples_));
  return global_index;
}

CyclicOrder::CyclicOrder(std::int64_t total_samples, std::int64_t micro_batch_size, std::int64_t dp_size,
                         bool data_sharding)
    : micro_batch_size_(micro_batch_size), dp_size_(dp_size), data_sharding_(data_sharding) {
  MEGATRON_CHECK(micro_batch_size > 0 && dp_size > 0, "micro batch size ", micro_batch_size, ", ", dp_size, " ranks");
  const std::int64_t step = micro_batch_size * dp_size;
  active_ = total_samples - total_samples % step;
  if (active_ <= 0)
    throw Error(str_cat("no samples left to consume: ", total_samples, " samples, fewer than micro batch size ",
                        micro_batch_size, " times data-parallel size ", dp_size));
  bucket_ = data_sharding ? active_ / dp_size : total_samples / micro_batch_size * micro_batch_size;
}

std::shared_ptr<const CyclicOrder::Permutation> CyclicOrder::permutation(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  if (cached_epoch_ != epoch) {
    cached_ = std::make_shared<const Permutation>(torch_randperm(bucket_, static_cast<std::uint64_t>(epoch)));
    cached_epoch_ = epoch;
  }
  return cached_;
}

std::int64_t CyclicOrder::dataset_index(std::int64_t global_index) const {
  MEGATRON_CHECK_GE(global_index, 0);
  const auto order = permutation(global_index / active_);
  const std::int64_t current = global_index % active_, step = micro_batch_size_ * dp_size_;
  const std::int64_t micro_step = current / step, rank = current % step / micro_batch_size_;
  const std::int64_t place = micro_step * micro_batch_size_ + current % micro_batch_size_;  // within the rank's share
  const std::int64_t at = data_sharding_ ? place : place * dp_size_ + rank;
  return (*order)[static_cast<std::size_t>(at)] + (data_sharding_ ? rank * bucket_ : 0);
}

std::vector<std::vector<std::int64_t>> single_batches(const SamplerArgs& args, bool drop_last) {
  if (args.total_samples <= 0) throw Error(str_cat("no sample to consume: ", args.total_samples));
  if (args.consumed_samples >= args.total_samples)
    throw Error(str_cat("no samples left to consume: ", args.consumed_samples, ", ", args.total_samples));
  const std::int64_t step = args.micro_batch_size * args.dp_size;
  std::vector<std::vector<std::int64_t>> batches;
  for (std::int64_t start = args.consumed_samples; start < args.total_samples; start += step) {
    const std::int64_t have = std::min(step, args.total_samples - start);
    if (have < step && drop_last) break;
    const std::int64_t first = std::min(args.dp_rank * args.micro_batch_size, have);
    const std::int64_t last = std::min(first + args.micro_batch_size, have);
    std::vector<std::int64_t> batch(static_cast<std::size_t>(last - first));
    std::iota(batch.begin(), batch.end(), start + first);
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::vector<std::vector<std::int64_t>> cyclic_batches(const SamplerArgs& args, bool data_sharding) {
  const CyclicOrder order(args.total_samples, args.micro_batch_size, args.dp_size, data_sharding);
  const std::int64_t step = args.micro_batch_size * args.dp_size, epoch = order.samples_per_epoch();
  MEGATRON_CHECK_EQ(args.consumed_samples % epoch % step, 0, "consumed samples must be whole batches of ", step);
  std::vector<std::vector<std::int64_t>> batches;
  const std::int64_t end = (args.consumed_samples / epoch + 1) * epoch;
  for (std::int64_t start = args.consumed_samples; start < end; start += step) {
    std::vector<std::int64_t> batch(static_cast<std::size_t>(args.micro_batch_size));
    for (std::int64_t i = 0; i < args.micro_batch_size; ++i)
      batch[static_cast<std::size_t>(i)] = order.dataset_index(start + args.dp_rank * args.micro_batch_size + i);
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::vector<std::int64_t> full_validation_indices(std::int64_t total_samples, std::int64_t dp_rank,
                                                  std::int64_t dp_size) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = dp_rank; i < total_samples; i += dp_size) indices.push_back(i);
  return indices;
}

}  // namespace megatron::data
