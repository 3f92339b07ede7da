// Main gradients of one rank in one contiguous buffer, cut into buckets that are reduced over data parallelism while
// backward still runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mesh/mesh.h"
#include "nn/hooks.h"
#include "optim/flat_layout.h"

namespace megatron::optim {

struct GradBufferOptions {
  std::optional<std::int64_t> bucket_size = {};  // elements; unset: max(40e6, 1e6·dp), Megatron's default
  bool sharded = false;                          // each data-parallel rank owns a part of every bucket
  bool overlap = true;                           // false: buckets are reduced in finish_step()
  bool reduce_in_bf16 = false;  // round for the reduction over data parallelism, which adds in float32 and rounds again
  Indivisible indivisible = nullptr;  // what no shard may hold a part of; null: nothing
};

/// The layout is FlatLayout's. With shards (a distributed optimizer) a bucket is reduce-scattered: each data-parallel
/// rank gets the sums of its own part, in place; the rest of the buffer is then of no use until the next step. Order of
/// sums (level 0): micro-batches are added locally in their order, then data-parallel ranks by the canonical tree, then
/// tensor-parallel ranks by the same tree, then lookup + head. Buckets are launched in a fixed order as soon as their
/// prefix is complete, so the order of collectives never depends on timing.
class GradBuffer : public nn::GradSink {
 public:
  /// Allocates the buffer and sets main_grad of every trainable parameter, in float32
  /// (float64 for gradient checks).
  GradBuffer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, const GradBufferOptions& options = {});

  /// Gradients start anew (1-D ones are zeroed, matrices marked: Parameter::main_grad_is_stale); says how many times
  /// each parameter will report before its gradient is complete.
  void start_step(std::int64_t num_micro_batches);
  /// Counts one micro-batch of `parameter`; after the last one of the step it launches the buckets that became
  /// complete.
  void grad_ready(nn::Parameter& parameter) override;
  /// Waits for all buckets, then completes gradients (what this rank owns of them) over the model axes: sums over TP
  /// (GradReduction), tied uses (lookup + head). With both uses on one stage the sum is in the table's main_grad and
  /// the tied use keeps its own part; on different stages both hold the sum, in the same bits. Throws Error where a
  /// parameter has not reported as often as start_step promised. Collective over dp, tp and the embedding group.
  void finish_step();

  /// Seconds that finish_step waited for communication in this step.
  double exposed_seconds() const { return exposed_seconds_; }
  const FlatLayout& layout() const { return layout_; }
  bool sharded() const { return sharded_; }
  /// What this rank's optimizer updates: all of each trainable parameter, or this rank's shards of them.
  const std::vector<ParameterRange>& owned() const { return owned_; }

 private:
  struct BucketState {
    std::int64_t num_complete = 0;  // parameters, in this step
    comm::Pending<Tensor> reduction;
    std::int64_t result_begin = 0;  // of a reduction in bfloat16: where its result belongs in the buffer
  };

  void launch_ready_buckets();
  void launch(const FlatBucket& bucket, BucketState& state);
  void wait_for_buckets();
  void check_all_reported() const;
  void sum_over_tensor_parallel();
  void sum_tied_uses();
  /// The owned part of `parameter`'s rows [row, row + rows) as elements of its flat main_grad; may be empty.
  std::pair<std::int64_t, std::int64_t> owned_elements(const nn::Parameter& parameter, std::int64_t row,
                                                       std::int64_t rows) const;

  mesh::Rank& rank_;
  bool sharded_, overlap_, reduce_in_bf16_;
  FlatLayout layout_;
  std::vector<ParameterRange> owned_;
  Tensor buffer_;
  bool written_ = false;  // by an earlier step
  std::vector<BucketState> buckets_;
  std::vector<std::int64_t> reports_;  // of each slot of the layout, in this step
  std::int64_t num_micro_batches_ = 1;
  std::size_t next_bucket_ = 0;
  double exposed_seconds_ = 0.0;
};

}  // namespace megatron::optim
