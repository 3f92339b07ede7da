#include "data/samplers.h"

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

void SequentialOrder::check_start(std::int64_t consumed_samples) const {
  if (consumed_samples >= total_samples_)
    throw Error(str_cat("no samples left to consume: ", consumed_samples, " of ", total_samples_, " are consumed"));
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

void CyclicOrder::check_start(std::int64_t consumed_samples) const {
  const std::int64_t step = micro_batch_size_ * dp_size_;
  if (consumed_samples % active_ % step != 0)
    throw Error(str_cat(
        "--dataloader-type cyclic cannot continue after ", consumed_samples,
        " samples: within the epoch they must be a multiple of micro batch size times data-parallel size, ", step));
}

}  // namespace megatron::data
