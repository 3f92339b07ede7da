#include "optim/step_reduction.h"

#include <utility>

#include "kernels/elementwise.h"

namespace megatron::optim {

StepReduction::StepReduction(const ReductionSetup& setup)
    : BucketReduction(setup), buckets_(setup.layout.buckets().size()) {
  buffer_ = setup_.rank.exec.zeros(Shape{setup_.layout.num_elements()}, dtype(), MemoryKind::gradient);
  for (const FlatSlot& slot : setup_.layout.slots())
    slot.parameter->main_grad =
        Tensor::on_storage(buffer_.storage(), slot.offset, slot.parameter->value.shape(), dtype());
}

void StepReduction::start_step() {
  next_bucket_ = 0;
  for (BucketState& bucket : buckets_) bucket.num_complete = 0;
  if (!std::exchange(written_, true)) return;  // new memory is zero
  for (nn::Parameter* parameter : setup_.layout.parameters()) {
    if (parameter->value.num_dims() == 1)
      kernels::fill_zero(setup_.rank.exec, parameter->main_grad);
    else
      parameter->main_grad_is_stale = true;
  }
}

void StepReduction::complete(const FlatSlot& slot, bool last_micro_batch) {
  if (!last_micro_batch) return;
  ++buckets_[slot.bucket].num_complete;
  if (setup_.overlap) launch_ready_buckets();
}

void StepReduction::launch_ready_buckets() {
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) {
    const FlatBucket& bucket = setup_.layout.buckets()[next_bucket_];
    BucketState& state = buckets_[next_bucket_];
    if (state.num_complete < std::ssize(bucket.items)) return;
    if (!setup_.rank.mesh.dp.trivial()) state.reduction = launch(bucket, buffer_.slice(0, bucket.begin, bucket.end));
  }
}

void StepReduction::finish_step() {
  launch_ready_buckets();
  if (setup_.rank.mesh.dp.trivial()) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Tensor sums = wait(buckets_[b].reduction);
    if (!setup_.in_bf16) continue;  // they are in place
    const std::int64_t begin = owned_begin(setup_.layout.buckets()[b]);
    kernels::copy(setup_.rank.exec, sums, buffer_.slice(0, begin, begin + sums.numel()));
  }
}

Tensor StepReduction::owned_gradient(const ParameterRange& range) const {
  return range.parameter->main_grad.flat().slice(0, range.begin, range.end);
}

}  // namespace megatron::optim
