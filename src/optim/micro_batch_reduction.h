// Gradients that are reduced over data parallelism after every micro-batch: full-size memory of a bucket lives only
// while a micro-batch's gradient is written and sent.
#pragma once

#include <deque>
#include <vector>

#include "optim/bucket_reduction.h"

namespace megatron::optim {

/// ZeRO stages 2 and 3 (arXiv 1910.02054), and any stage that is to give their bits. What lives through a step are the
/// float32 sums of what this rank owns: first the ranks' gradients of one micro-batch are added (canonical tree), then
/// micro-batches in their order. At most one bucket is under way while another is written. Needs a layout within
/// groups: the parameters of a bucket then complete a micro-batch before the next one writes them.
class MicroBatchReduction final : public BucketReduction {
 public:
  explicit MicroBatchReduction(const ReductionSetup& setup);

  void start_step() override;
  void prepare(const FlatSlot& slot) override;
  void complete(const FlatSlot& slot, bool last_micro_batch) override;
  void finish_step() override;
  Tensor owned_gradient(const ParameterRange& range) const override;
  bool keeps_own_gradients() const override { return false; }

 private:
  struct BucketState {
    Tensor written;                 // gradients of the micro-batch under way; undefined between micro-batches
    std::int64_t num_complete = 0;  // parameters, of this micro-batch
    std::int64_t sums_begin = 0;    // in sums_
    bool has_sums = false;          // of this step
  };
  struct UnderWay {
    std::size_t bucket;
    comm::Pending<Tensor> reduction;
  };

  void allocate(std::size_t bucket);
  Tensor sums_of(std::size_t bucket) const;
  /// Waits for the oldest reductions and adds them, until at most `limit` are under way.
  void add_reduced(std::size_t limit);

  std::vector<BucketState> buckets_;
  std::deque<UnderWay> under_way_;
  Tensor sums_;
};

}  // namespace megatron::optim
