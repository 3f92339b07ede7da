#include "optim/micro_batch_reduction.h"

#include <utility>

#include "base/check.h"
#include "kernels/elementwise.h"

namespace megatron::optim {

MicroBatchReduction::MicroBatchReduction(const ReductionSetup& setup)
    : BucketReduction(setup), buckets_(setup.layout.buckets().size()) {
  std::int64_t size = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].sums_begin = size;
    size += owned_size(setup_.layout.buckets()[b]);
  }
  sums_ = setup_.rank.exec.zeros(Shape{size}, dtype(), MemoryKind::gradient);
}

void MicroBatchReduction::start_step() {
  for (BucketState& bucket : buckets_) bucket.has_sums = false;
}

Tensor MicroBatchReduction::sums_of(std::size_t bucket) const {
  const std::int64_t begin = buckets_[bucket].sums_begin;
  return sums_.slice(0, begin, begin + owned_size(setup_.layout.buckets()[bucket]));
}

void MicroBatchReduction::prepare(const FlatSlot& slot) {
  if (!buckets_[slot.bucket].written.defined()) allocate(slot.bucket);
}

void MicroBatchReduction::allocate(std::size_t bucket) {
  add_reduced(1);
  const FlatBucket& range = setup_.layout.buckets()[bucket];
  Tensor& written = buckets_[bucket].written;
  written = setup_.rank.exec.empty(Shape{range.end - range.begin}, dtype(), MemoryKind::gradient);
  std::int64_t end = range.end;
  for (auto s = range.items.rbegin(); s != range.items.rend(); ++s) {
    const FlatSlot& slot = setup_.layout.slots()[*s];
    nn::Parameter& parameter = *slot.parameter;
    const bool matrix = parameter.value.num_dims() > 1;
    // Vectors are added to, and gaps are sent along; matrices are written by their first task.
    const std::int64_t zeros = slot.offset + (matrix ? parameter.value.numel() : 0);
    kernels::fill_zero(setup_.rank.exec, written.slice(0, zeros - range.begin, end - range.begin));
    end = slot.offset;
    parameter.main_grad =
        Tensor::on_storage(written.storage(), slot.offset - range.begin, parameter.value.shape(), dtype());
    parameter.main_grad_is_stale = matrix;
  }
}

void MicroBatchReduction::complete(const FlatSlot& slot, bool) {
  BucketState& state = buckets_[slot.bucket];
  const FlatBucket& bucket = setup_.layout.buckets()[slot.bucket];
  MEGATRON_CHECK(state.written.defined(), slot.parameter->name, " reported a gradient that was not prepared");
  if (++state.num_complete < std::ssize(bucket.items)) return;
  state.num_complete = 0;
  for (const std::size_t s : bucket.items) setup_.layout.slots()[s].parameter->main_grad.reset();
  under_way_.push_back({slot.bucket, launch(bucket, state.written)});
  state.written.reset();
  if (!setup_.overlap) add_reduced(0);
}

void MicroBatchReduction::add_reduced(std::size_t limit) {
  for (; under_way_.size() > limit; under_way_.pop_front()) {
    UnderWay& oldest = under_way_.front();
    const Tensor sums = wait(oldest.reduction);
    if (std::exchange(buckets_[oldest.bucket].has_sums, true))
      kernels::add_in_place(setup_.rank.exec, sums, sums_of(oldest.bucket));
    else
      kernels::copy(setup_.rank.exec, sums, sums_of(oldest.bucket));
  }
}

void MicroBatchReduction::finish_step() { add_reduced(0); }

Tensor MicroBatchReduction::owned_gradient(const ParameterRange& range) const {
  const FlatSlot& slot = setup_.layout.slot_of(*range.parameter);
  const std::int64_t begin = slot.offset + range.begin - owned_begin(setup_.layout.buckets()[slot.bucket]);
  return sums_of(slot.bucket).slice(0, begin, begin + range.size());
}

}  // namespace megatron::optim
