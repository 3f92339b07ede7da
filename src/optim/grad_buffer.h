// Main gradients of one rank in one contiguous buffer, cut into buckets that are reduced over data parallelism while
// backward still runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mesh/mesh.h"
#include "nn/hooks.h"

namespace megatron::optim {

/// Parameters lie in reverse order (as backward produces them), each starting at a multiple of 64 elements; a bucket closes
/// when it has `bucket_size` elements. Tied uses of the embedding table have buckets of their own.
/// Order of sums (level 0): micro-batches are added locally, then ranks by the canonical tree. Buckets are launched in a
/// fixed order as soon as their prefix is complete, so the order of collectives never depends on timing.
class GradBuffer : public nn::GradSink {
 public:
  /// Allocates the buffer and sets main_grad of every parameter. fp32 (fp64 for fp64 parameters).
  GradBuffer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, std::optional<std::int64_t> bucket_size);

  /// Zeroes the gradients and says how many times each parameter will report before its gradient is complete.
  void start_step(std::int64_t num_micro_batches);
  void grad_ready(nn::Parameter& parameter) override;
  /// Waits for all buckets, then completes gradients over the model axes: sums over TP (GradReduction), tied uses
  /// (lookup + head, also across stages; both end up with the same bits). Collective.
  void finish_step();

  /// Seconds that finish_step and grad_ready waited for communication in this step.
  double exposed_seconds() const { return exposed_seconds_; }
  std::int64_t num_elements() const;
  std::int64_t num_buckets() const;

  struct Bucket;

 private:
  mesh::Rank& rank_;
  std::vector<nn::Parameter*> parameters_;
  std::vector<std::shared_ptr<Bucket>> buckets_;
  std::int64_t num_micro_batches_ = 1;
  std::size_t next_bucket_ = 0;
  double exposed_seconds_ = 0.0;
};

}  // namespace megatron::optim
