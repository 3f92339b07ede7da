// Gradients of one rank in flat buckets: which have been reported, their reduction over data parallelism while backward
// still runs, and what the model axes still have to add.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "mesh/mesh.h"
#include "nn/hooks.h"
#include "optim/bucket_reduction.h"
#include "optim/flat_layout.h"

namespace megatron::optim {

struct GradBufferOptions {
  std::optional<std::int64_t> bucket_size = {};  // elements; unset: max(40e6, 1e6·dp), Megatron's default
  bool sharded = false;                          // each data-parallel rank owns a part of every bucket
  bool overlap = true;                           // false: nothing is reduced while backward goes on
  bool reduce_in_bf16 = false;  // round for the reduction over data parallelism, which adds in float32 and rounds again
  Indivisible indivisible = nullptr;  // what no shard may hold a part of; null: nothing
  /// Reduce after every micro-batch (micro_batch_reduction.h) instead of once per step; of no effect on one rank.
  bool every_micro_batch = false;
};

/// The layout is FlatLayout's. Order of sums (level 0): micro-batches are added locally in their order, then
/// data-parallel ranks by the canonical tree (with every_micro_batch: ranks first, then micro-batches), then
/// tensor-parallel ranks by the same tree, then lookup + head.
class GradBuffer : public nn::GradSink {
 public:
  /// Gives every trainable parameter a main_grad, in float32 (float64 for gradient checks): for good, or with
  /// every_micro_batch while one is written.
  GradBuffer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, const GradBufferOptions& options = {});

  /// Gradients start anew; says how many times each parameter will report before its gradient is complete.
  void start_step(std::int64_t num_micro_batches);
  void prepare(nn::Parameter& parameter) override;
  /// Counts one micro-batch of `parameter`. What became complete by it is launched.
  void grad_ready(nn::Parameter& parameter) override;
  /// Waits for all reductions, then completes gradients (what this rank owns of them) over the model axes: sums over TP
  /// (GradReduction), tied uses (lookup + head). With both uses on one stage the sum is in the table's gradient and
  /// the tied use keeps its own part; on different stages both hold the sum, in the same bits. Throws Error where a
  /// parameter has not reported as often as start_step promised. Collective over dp, tp and the embedding group.
  void finish_step();

  /// Who brought what is not finite: this rank; this rank, unless another one says that it did; any data-parallel rank.
  enum class BroughtBy : std::uint8_t { this_rank, this_rank_unless_another, any_rank };
  struct BadGradient {
    std::string parameter;  // empty: all are finite
    BroughtBy by = BroughtBy::this_rank;
  };
  /// The first gradient that is not finite, after finish_step().
  BadGradient find_not_finite() const;

  /// Seconds that this step waited for communication of gradients.
  double exposed_seconds() const { return exposed_seconds_; }
  const FlatLayout& layout() const { return layout_; }
  bool sharded() const { return sharded_; }
  /// What this rank's optimizer updates, all of each trainable parameter or this rank's shards of them, in forward
  /// order. Gradients are final after finish_step(); values are left undefined.
  const std::vector<OwnedPart>& owned() const { return owned_; }
  /// That of one parameter; null where there is none.
  const OwnedPart* owned_part(const nn::Parameter& parameter) const;

 private:
  void check_all_reported() const;
  void sum_over_tensor_parallel();
  void sum_tied_uses();
  /// The owned part of the gradient of `parameter`'s rows [row, row + rows); undefined where nothing is owned.
  Tensor owned_rows(const nn::Parameter& parameter, std::int64_t row, std::int64_t rows) const;

  mesh::Rank& rank_;
  bool sharded_;
  FlatLayout layout_;
  std::unique_ptr<BucketReduction> reduction_;  // null without parameters
  std::vector<OwnedPart> owned_;
  std::unordered_map<const nn::Parameter*, std::size_t> owned_index_;
  std::vector<std::int64_t> reports_;  // of each slot of the layout, in this step
  std::int64_t num_micro_batches_ = 1;
  double exposed_seconds_ = 0.0;
};

}  // namespace megatron::optim
