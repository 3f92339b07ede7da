// One pipeline stage of a Transformer on one rank: embedding (first stage), blocks, final norm and head (last stage).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/pass.h"
#include "spec/run_spec.h"

namespace megatron::model {

/// Everything that a stage keeps between forward and backward of one micro-batch. Opaque here; visit() sees each
/// tensor.
struct StageStash {
  struct Contents;
  std::unique_ptr<Contents> contents;
  StageStash();
  ~StageStash();
  StageStash(StageStash&&) noexcept;
  StageStash& operator=(StageStash&&) noexcept;
  void visit(const std::function<void(const char* name, const Tensor&)>& f) const;
  std::int64_t bytes() const;
};

class Stage {
 public:
  virtual ~Stage() = default;

  /// `input`: the hidden state [T_local, H] of the stage before (undefined on the first stage), T_local = T/tp under
  /// sequence parallelism. Returns the hidden state for the next stage, or on the last stage the loss of every token
  /// [T], unmasked (fp32, fp64 with fp64 weights).
  virtual Tensor forward(nn::Pass& pass, const Tensor& input, StageStash& stash) = 0;
  /// `d_output`: gradient of what forward returned; undefined on the last stage, where it is loss_mask ×
  /// backward_scale. Returns the gradient of `input` (undefined on the first stage). Weight gradients go through
  /// pass.weight_grads.
  virtual Tensor backward(nn::Pass& pass, Tensor d_output, StageStash&& stash) = 0;
  /// Last stage only: final norm and head of a forward pass without labels. Rows `row_begin … row_end` of the full
  /// token list → logits [rows, vocab_size] on every TP rank (gathered, padded columns cut off). Takes what forward
  /// would take.
  virtual Tensor forward_logits(nn::Pass& pass, const Tensor& input, std::int64_t row_begin, std::int64_t row_end) = 0;

  /// In forward order: embedding, layers, final norm, head. Stable addresses.
  virtual const std::vector<nn::Parameter*>& parameters() = 0;
};

}  // namespace megatron::model
