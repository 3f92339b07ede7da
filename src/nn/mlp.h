// The feed-forward part of a layer, cut over its inner features (arXiv 1909.08053 §3), plain or gated (arXiv
// 2002.05202). Legend: T tokens, H hidden, F inner features. Gated: linear_fc1's rows are [all gate; all up], a shard
// [gate_r; up_r].
#pragma once

#include "kernels/activation.h"
#include "nn/linear.h"
#include "spec/block_shape.h"

namespace megatron::nn {

struct MlpOptions {
  spec::Activation activation = spec::Activation::gelu_tanh;
  Initializer fc1_init, fc2_init;
  bool recompute = false;  // keep the input alone; backward repeats linear_fc1 and the activation
};

class Mlp {
 public:
  struct Stash {
    ColumnParallelLinear::Stash linear_fc1;
    Tensor h_TF;                          // before the activation; [T, 2F] when gated
    RowParallelLinear::Stash linear_fc2;  // its x is the activation's output

    template <typename F>
    void visit(F&& f) const {
      linear_fc1.visit(f);
      f("h", h_TF);
      linear_fc2.visit(f);
    }
  };

  /// `name`: "decoder.layers.3.mlp".
  Mlp(const LayerSetup& setup, const std::string& name, const spec::MlpShape& shape, const MlpOptions& options);
  Mlp(const Mlp&) = delete;
  Mlp& operator=(const Mlp&) = delete;

  /// [T, H] (or token shard) → the same shape, without linear_fc2's bias.
  Tensor forward(Pass& pass, const Tensor& x_TH, Stash& stash);
  Tensor backward(Pass& pass, Tensor dy_TH, Stash&& stash);
  ConstTensorView output_bias() const { return linear_fc2_.bias_view(); }
  void collect(std::vector<Parameter*>& out);

 private:
  /// The activation's output for `h`; `keep`: h is still needed.
  Tensor activate(Pass& pass, const Tensor& h_TF, bool keep);

  LayerSetup setup_;
  spec::MlpShape shape_;
  bool recompute_;
  kernels::ActivationKind activation_;
  ColumnParallelLinear linear_fc1_;
  RowParallelLinear linear_fc2_;
};

}  // namespace megatron::nn
