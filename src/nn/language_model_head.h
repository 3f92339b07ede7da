// Projection to the vocabulary and cross-entropy in one layer; logits are cut over the vocabulary and never gathered in
// training (arXiv 1909.08053 §3). Legend: T tokens, H hidden, V vocabulary.
// Both gradients are formed in the forward pass of training, tile by tile of spec::HeadShape::kTileTokens tokens: a
// tile's logits are turned into their gradient in place, multiplied twice and dropped, so no product is computed twice
// and the logits of all tokens never exist. Backward returns the stashed dx and reports the weight gradient. Only where
// the schedule computes weight gradients apart (Pass::weights_apart) the tiles' gradients live on until W.
// Columns of the padding (≥ vocabulary size) take no part in the softmax. A token whose loss mask is 0 contributes
// exactly nothing to any gradient, even where its logits are not finite.
#pragma once

#include <vector>

#include "nn/linear.h"
#include "spec/block_shape.h"

namespace megatron::nn {

class LanguageModelHead {
 public:
  struct Stash {
    Tensor dx_TH;                         // shaped as x: the token shard under sequence parallelism
    std::vector<LinearTask> weight_grad;  // with weights apart: one for each tile
    template <typename F>
    void visit(F&& f) const {
      f("dx", dx_TH);
      for (const LinearTask& task : weight_grad) {
        f("x", task.x);
        f("d_logits", task.dy);
      }
    }
  };

  /// `tied`: this is the second use of the token table; `table` is it when it is on this stage (its memory is used),
  /// else null: the head then holds a copy. Untied: a matrix of its own, output_layer.weight.
  LanguageModelHead(const LayerSetup& setup, const spec::HeadShape& shape, Initializer init, bool tied,
                    const Parameter* table);
  LanguageModelHead(const LanguageModelHead&) = delete;
  LanguageModelHead& operator=(const LanguageModelHead&) = delete;

  /// Loss of each token [T] against pass.batch.labels, unmasked. Sums over ranks are level 0. With pass.keep_stash the
  /// gradients too, seeded with loss_mask × backward_scale.
  Tensor forward(Pass& pass, const Tensor& x_TH, Stash& stash);
  /// dx, shaped as x.
  Tensor backward(Pass& pass, Stash&& stash);
  /// x [rows, H], the same on all ranks → [rows, vocabulary size] on all ranks; at least float32.
  Tensor logits(Pass& pass, const Tensor& x_TH);
  void collect(std::vector<Parameter*>& out) { out.push_back(&weight_); }

 private:
  std::int64_t first_column() const { return setup_.tp.rank() * shape_.local_vocab(); }
  std::int64_t valid_columns() const;
  void project(Pass& pass, const Tensor& x_TH, TensorView logits);
  /// The tokens of one tile, starting with `begin`: their losses; with a seed, which is not null then, their gradients
  /// too. `logits` is the tile's memory.
  void forward_tile(Pass& pass, const Tensor& x_TH, std::int64_t begin, Tensor logits, const Tensor* seed_T,
                    Tensor& loss_T, Tensor& dx_TH, Stash& stash);
  Tensor loss_seed(Pass& pass) const;

  LayerSetup setup_;
  spec::HeadShape shape_;
  Parameter weight_;
};

}  // namespace megatron::nn
