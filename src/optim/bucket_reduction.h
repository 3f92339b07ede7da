// How the gradients in flat buckets become sums over data-parallel ranks: once per step (step_reduction.h) or after
// every micro-batch (micro_batch_reduction.h).
#pragma once

#include "mesh/mesh.h"
#include "optim/flat_layout.h"

namespace megatron::optim {

struct ReductionSetup {
  mesh::Rank& rank;
  const FlatLayout& layout;
  bool sharded = false;  // a data-parallel rank gets the sums of its shard alone: reduce-scatter instead of all-reduce
  bool overlap = true;   // reductions run while backward goes on
  bool in_bf16 = false;  // a rank's gradients are rounded for the message, added in float32, rounded once more
};

/// Owns the memory of gradients. Calls come in the same order on all data-parallel ranks.
class BucketReduction {
 public:
  virtual ~BucketReduction() = default;

  virtual void start_step() = 0;
  /// Makes main_grad of the slot's parameter a place where this micro-batch's gradient is added.
  virtual void prepare(const FlatSlot& slot) = 0;
  /// The slot's gradient of one micro-batch, the step's last one or not, is complete.
  virtual void complete(const FlatSlot& slot, bool last_micro_batch) = 0;
  /// Ends with the step's sums in what owned_gradient() gives. Every slot has completed all micro-batches.
  virtual void finish_step() = 0;
  /// The sums of a range that this rank owns, flat; the same memory in every step.
  virtual Tensor owned_gradient(const ParameterRange& range) const = 0;
  /// After finish_step(), what other ranks own still holds in main_grad what this rank alone gave to the sums.
  virtual bool keeps_own_gradients() const = 0;

  /// Seconds that this rank waited for reductions since the last call.
  double take_exposed_seconds();

 protected:
  explicit BucketReduction(const ReductionSetup& setup);

  /// Sends all elements of a bucket; the result are the sums of what this rank owns of it, in `message` or, where they
  /// were rounded, in bfloat16.
  comm::Pending<Tensor> launch(const FlatBucket& bucket, const Tensor& message) const;
  Tensor wait(comm::Pending<Tensor>& reduction);
  /// Elements of the flat buffer that this rank owns of a bucket: [begin, begin + size).
  std::int64_t owned_begin(const FlatBucket& bucket) const;
  std::int64_t owned_size(const FlatBucket& bucket) const;
  DType dtype() const;

  const ReductionSetup setup_;

 private:
  double exposed_seconds_ = 0.0;
};

}  // namespace megatron::optim
