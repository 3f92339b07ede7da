// Which sample comes when: Megatron-LM's batch samplers (`--dataloader-type single` and `cyclic`), as functions of the
// global sample index, the number of samples consumed before.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace megatron::data {

/// torch.randperm(n) of a CPU generator seeded with `seed` (low 32 bits), for n < 2³²: a Mersenne Twister drives a
/// forward Fisher–Yates shuffle.
std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

class SampleOrder {
 public:
  virtual ~SampleOrder() = default;
  /// The data set index of the sample with this global index (≥ 0). Throws Error when the data end before.
  /// May be called from any thread.
  virtual std::int64_t dataset_index(std::int64_t global_index) const = 0;
  /// Throws Error when a run cannot start after `consumed_samples`.
  virtual void check_start(std::int64_t consumed_samples) const { static_cast<void>(consumed_samples); }
};

/// Global index = data set index; the data set was built long enough for the run.
class SequentialOrder final : public SampleOrder {
 public:
  explicit SequentialOrder(std::int64_t total_samples) : total_samples_(total_samples) {}
  std::int64_t dataset_index(std::int64_t global_index) const override;
  /// At least one sample must be left.
  void check_start(std::int64_t consumed_samples) const override;

 private:
  std::int64_t total_samples_;
};

/// A new random permutation in every epoch. As in Megatron-LM it is made of micro-batch-sized pieces per rank, so the
/// order depends on micro_batch_size·dp_size (the only place where a layout reaches the data).
class CyclicOrder final : public SampleOrder {
 public:
  /// Throws Error when total_samples < micro_batch_size·dp_size. `data_sharding`: ranks shuffle a bucket of their own.
  CyclicOrder(std::int64_t total_samples, std::int64_t micro_batch_size, std::int64_t dp_size,
              bool data_sharding = true);
  std::int64_t dataset_index(std::int64_t global_index) const override;
  /// What was consumed must be whole micro-batches of all ranks.
  void check_start(std::int64_t consumed_samples) const override;
  std::int64_t samples_per_epoch() const { return active_; }

 private:
  using Permutation = std::vector<std::int64_t>;
  std::shared_ptr<const Permutation> permutation(std::int64_t epoch) const;

  std::int64_t micro_batch_size_, dp_size_;
  bool data_sharding_;
  std::int64_t active_;  // samples of one epoch: a multiple of micro_batch_size·dp_size
  std::int64_t bucket_;  // entries of the permutation
  mutable std::mutex mutex_;
  mutable std::int64_t cached_epoch_ = -1;
  mutable std::shared_ptr<const Permutation> cached_;
};

}  // namespace megatron::data
