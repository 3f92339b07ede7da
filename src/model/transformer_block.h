// One pre-norm Transformer layer: x + dropout(attention(norm(x)) + b), then the same with the MLP.
// Legend: T tokens (the shard under sequence parallelism), H hidden.
#pragma once

#include <memory>

#include "nn/attention/self_attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "spec/block_shape.h"
#include "spec/recompute_spec.h"

namespace megatron::model {

/// Std of the layers that write into the residual stream, std/√(2·layers), and the rest of Megatron-LM's
/// initialisation.
struct Initializers {
  nn::Initializer qkv, proj, fc1, fc2, word, position, head;
};
Initializers make_initializers(const spec::ModelSpec& model);

class TransformerBlock {
 public:
  struct Stash {
    nn::Norm::Stash input_layernorm, pre_mlp_layernorm;
    nn::SelfAttention::Stash self_attention;
    nn::Mlp::Stash mlp;

    template <typename F>
    void visit(F&& f) const {
      input_layernorm.visit(f);
      self_attention.visit(f);
      pre_mlp_layernorm.visit(f);
      mlp.visit(f);
    }
  };

  /// `layer`: global, 0-based; `local_layer`: within the stage.
  TransformerBlock(const nn::LayerSetup& setup, const spec::ModelSpec& model, const spec::BlockShape& shape,
                   const Initializers& initializers, std::int64_t layer, std::int64_t local_layer,
                   bool decay_head_norms, std::shared_ptr<const nn::RopeTable> rope,
                   const spec::RecomputeModules& recompute);

  /// [T, H] → a new tensor of the same shape; with keep_stash x's memory is kept and must not change until backward.
  Tensor forward(nn::Pass& pass, const Tensor& x_TH, Stash& stash);
  /// Gradient of the output → gradient of x, both [T, H]. dy_TH is only read. Weight gradients go through
  /// pass.weight_grads.
  Tensor backward(nn::Pass& pass, Tensor dy_TH, Stash&& stash);
  void collect(std::vector<nn::Parameter*>& out);

 private:
  /// Dropout after attention (0) and after the MLP (1) of this layer.
  kernels::DropoutSpec dropout(const nn::Pass& pass, int place) const;
  Tensor add_residual(nn::Pass& pass, Tensor branch_TH, ConstTensorView bias, const Tensor& residual_TH, int place);
  Tensor branch_gradient(nn::Pass& pass, const Tensor& dy_TH, int place);
  /// The output of a norm from what it keeps, for the linear layer that did not keep it.
  Tensor repeat_norm(nn::Pass& pass, nn::Norm& norm, const nn::Norm::Stash& stash);

  std::int64_t layer_;
  DType dtype_;  // of the branches
  double hidden_dropout_;
  bool recompute_norms_;
  nn::Norm input_layernorm_;
  nn::SelfAttention self_attention_;
  nn::Norm pre_mlp_layernorm_;
  nn::Mlp mlp_;
};

}  // namespace megatron::model
