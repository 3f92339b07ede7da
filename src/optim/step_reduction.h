// Gradients of a step in one contiguous buffer: micro-batches are added locally, then each bucket is reduced once.
#pragma once

#include <vector>

#include "optim/bucket_reduction.h"

namespace megatron::optim {

/// ZeRO stages 0 and 1. Buckets are launched in a fixed order as soon as their prefix is complete, so the order of
/// collectives depends neither on timing nor on the order in which gradients complete. With shards the sums of this
/// rank's own part are left in place; the rest of the buffer is then of no use until the next step.
class StepReduction final : public BucketReduction {
 public:
  /// Allocates the buffer and sets main_grad of every parameter of the layout, for good.
  explicit StepReduction(const ReductionSetup& setup);

  void start_step() override;
  void prepare(const FlatSlot&) override {}
  void complete(const FlatSlot& slot, bool last_micro_batch) override;
  void finish_step() override;
  Tensor owned_gradient(const ParameterRange& range) const override;
  bool keeps_own_gradients() const override { return setup_.sharded; }

 private:
  struct BucketState {
    std::int64_t num_complete = 0;  // parameters, in this step
    comm::Pending<Tensor> reduction;
  };

  void launch_ready_buckets();

  Tensor buffer_;
  bool written_ = false;  // by an earlier step
  std::vector<BucketState> buckets_;
  std::size_t next_bucket_ = 0;
};

}  // namespace megatron::optim
