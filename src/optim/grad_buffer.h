// Main gradients of one rank in one contiguous buffer, cut into buckets that are reduced over data parallelism while
// backward still runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "mesh/mesh.h"
#include "nn/hooks.h"

namespace megatron::optim {

/// Parameters lie in reverse order (as backward produces them), each starting at a multiple of kernels::kNormSegment; a
/// bucket closes when it has `bucket_size` elements. Both uses of a tied embedding table have buckets of their own.
/// Order of sums (level 0): micro-batches are added locally in their order, then data-parallel ranks by the canonical
/// tree, then tensor-parallel ranks by the same tree, then lookup + head. Buckets are launched in a fixed order as soon
/// as their prefix is complete, so the order of collectives never depends on timing.
class GradBuffer : public nn::GradSink {
 public:
  /// Allocates the buffer and sets main_grad of every trainable parameter, in the dtype of its value (float32; float64
  /// for gradient checks; all alike). `bucket_size` in elements; unset: max(40e6, 1e6·dp), Megatron's default.
  GradBuffer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, std::optional<std::int64_t> bucket_size);

  /// Gradients start anew (1-D ones are zeroed, matrices marked: Parameter::main_grad_is_stale); says how many times
  /// each parameter will report before its gradient is complete.
  void start_step(std::int64_t num_micro_batches);
  /// Counts one micro-batch of `parameter`; after the last one of the step it launches the buckets that became
  /// complete.
  void grad_ready(nn::Parameter& parameter) override;
  /// Waits for all buckets, then completes gradients over the model axes: sums over TP (GradReduction), tied uses
  /// (lookup + head). With both uses on one stage the sum is in the table's main_grad and the tied use keeps its own
  /// part; on different stages both hold the sum, in the same bits. Throws Error where a parameter has not reported as
  /// often as start_step promised. Collective over dp, tp and the embedding group.
  void finish_step();

  /// Seconds that finish_step waited for communication in this step.
  double exposed_seconds() const { return exposed_seconds_; }
  /// Elements of the buffer, gaps between parameters included.
  std::int64_t num_elements() const { return buffer_.defined() ? buffer_.numel() : 0; }
  std::int64_t num_buckets() const { return static_cast<std::int64_t>(buckets_.size()); }
  /// Elements [begin, end) of bucket `i` within the buffer.
  std::pair<std::int64_t, std::int64_t> bucket_range(std::int64_t i) const;

 private:
  struct Bucket {
    std::int64_t begin = 0, end = 0;  // elements of the buffer
    std::int64_t num_parameters = 0;  // that must be complete before launch
    std::int64_t num_complete = 0;    // in this step
    comm::Pending<Tensor> reduction;
  };
  struct Slot {
    std::int64_t offset = 0;
    std::size_t bucket = 0;
    std::int64_t reports = 0;  // in this step
  };

  void lay_out(std::int64_t bucket_size);
  void launch_ready_buckets();
  void wait_for_buckets();
  void check_all_reported() const;
  void sum_over_tensor_parallel();
  void sum_tied_uses();

  mesh::Rank& rank_;
  std::vector<nn::Parameter*> parameters_;  // trainable ones, in forward order
  Tensor buffer_;
  bool written_ = false;  // by an earlier step
  std::vector<Bucket> buckets_;
  std::unordered_map<const nn::Parameter*, Slot> slots_;
  std::int64_t num_micro_batches_ = 1;
  std::size_t next_bucket_ = 0;
  double exposed_seconds_ = 0.0;
};

}  // namespace megatron::optim
