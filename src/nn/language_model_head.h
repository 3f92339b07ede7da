// Projection to the vocabulary and cross-entropy in one layer; logits are cut over the vocabulary and never gathered in
// training (arXiv 1909.08053 §3). Legend: T tokens, H hidden, V vocabulary.
// Columns of the padding (≥ vocabulary size) take no part in the softmax. A token whose loss mask is 0 contributes
// exactly nothing to any gradient, even where its logits are not finite.
#pragma once

#include <optional>

#include "nn/linear.h"
#include "spec/block_shape.h"

namespace megatron::nn {

class LanguageModelHead {
 public:
  struct Stash {
    Tensor x_TH;  // as forward got it: the token shard under sequence parallelism
    Tensor logits_TV, max_T, sum_exp_T;
    template <typename F>
    void visit(F&& f) const {
      f("x", x_TH);
      f("logits", logits_TV);
      f("max", max_T);
      f("sum_exp", sum_exp_T);
    }
  };

  /// `tied`: this is the second use of the token table; `table` is it when it is on this stage (its memory is used),
  /// else null: the head then holds a copy. Untied: a matrix of its own, output_layer.weight.
  LanguageModelHead(const LayerSetup& setup, const spec::HeadShape& shape, Initializer init, bool tied,
                    const Parameter* table);
  LanguageModelHead(const LanguageModelHead&) = delete;
  LanguageModelHead& operator=(const LanguageModelHead&) = delete;

  /// Loss of each token [T] against pass.batch.labels, unmasked. Sums over ranks are level 0.
  Tensor forward(Pass& pass, const Tensor& x_TH, Stash& stash);
  /// Seeded with loss_mask × loss_scale; returns dx, shaped as x.
  Tensor backward(Pass& pass, Stash&& stash);
  /// x [rows, H], the same on all ranks → [rows, vocabulary size] on all ranks.
  Tensor logits(Pass& pass, const Tensor& x_TH);
  void collect(std::vector<Parameter*>& out) { out.push_back(&weight_); }

 private:
  std::int64_t first_column() const { return setup_.tp.rank() * shape_.local_vocab(); }
  std::int64_t valid_columns() const;
  Tensor project(Pass& pass, const Tensor& x_TH);
  Tensor loss_seed(Pass& pass) const;

  LayerSetup setup_;
  spec::HeadShape shape_;
  Parameter weight_;
};

}  // namespace megatron::nn
