#include "model/transformer_block.h"

#include <cmath>
#include <utility>

#include "kernels/elementwise.h"
#include "nn/recompute.h"

namespace megatron::model {
namespace {

nn::Initializer normal(double std) { return {nn::Initializer::Kind::normal, std}; }
/// Xavier's uniform bound for the logical matrix [rows, cols].
nn::Initializer xavier(std::int64_t rows, std::int64_t cols) {
  return {nn::Initializer::Kind::uniform, std::sqrt(6.0 / static_cast<double>(rows + cols))};
}

nn::SelfAttentionOptions attention_options(const spec::ModelSpec& model, const Initializers& initializers,
                                           std::int64_t layer, std::int64_t local_layer, bool decay_head_norms,
                                           std::shared_ptr<const nn::RopeTable> rope, bool recompute_core) {
  nn::SelfAttentionOptions options;
  options.recompute_core = recompute_core;
  options.qkv_init = initializers.qkv;
  options.proj_init = initializers.proj;
  options.dropout = model.attention_dropout;
  options.layer = layer;
  options.local_layer = local_layer;
  options.decay_head_norms = decay_head_norms;
  options.rope = std::move(rope);
  return options;
}

}  // namespace

Initializers make_initializers(const spec::ModelSpec& model) {
  const double std = model.init_method_std;
  const double output_std = std / std::sqrt(2.0 * static_cast<double>(model.num_layers));
  Initializers init;
  init.qkv = init.fc1 = normal(std);
  init.proj = init.fc2 = normal(output_std);
  init.word = init.position = init.head = normal(model.embedding_init_method_std.value_or(std));
  if (!model.init_method_xavier_uniform) return init;
  const std::int64_t hidden = model.hidden_size;
  init.qkv = xavier(model.qkv_rows(), hidden);
  init.proj = xavier(hidden, model.attention_width());
  init.fc1 = xavier(model.fc1_rows(), hidden);
  init.fc2 = xavier(hidden, model.ffn_hidden_size);
  if (model.embedding_init_method_std.has_value()) return init;
  init.word = init.head = xavier(model.vocab_size, hidden);
  init.position = xavier(model.max_position_embeddings, hidden);
  return init;
}

TransformerBlock::TransformerBlock(const nn::LayerSetup& setup, const spec::ModelSpec& model,
                                   const spec::BlockShape& shape, const Initializers& initializers, std::int64_t layer,
                                   std::int64_t local_layer, bool decay_head_norms,
                                   std::shared_ptr<const nn::RopeTable> rope, const spec::RecomputeModules& recompute)
    : layer_(layer),
      dtype_(setup.dtype),
      hidden_dropout_(model.hidden_dropout),
      recompute_norms_(recompute.layernorm),
      input_layernorm_(setup, str_cat("decoder.layers.", layer, ".input_layernorm"), shape.norm),
      self_attention_(setup, str_cat("decoder.layers.", layer, ".self_attention"), shape.attention,
                      attention_options(model, initializers, layer, local_layer, decay_head_norms, std::move(rope),
                                        recompute.core_attn)),
      pre_mlp_layernorm_(setup, str_cat("decoder.layers.", layer, ".pre_mlp_layernorm"), shape.norm),
      mlp_(setup, str_cat("decoder.layers.", layer, ".mlp"), shape.mlp,
           {model.activation, initializers.fc1, initializers.fc2, recompute.mlp}) {}

kernels::DropoutSpec TransformerBlock::dropout(const nn::Pass& pass, int place) const {
  if (!pass.training() || hidden_dropout_ == 0.0) return {};
  const auto stream = static_cast<std::uint64_t>(2 * layer_ + place);
  return {hidden_dropout_, make_philox_key(pass.seed, RandomPurpose::hidden_dropout, stream), 0};
}

Tensor TransformerBlock::add_residual(nn::Pass& pass, Tensor branch_TH, ConstTensorView bias, const Tensor& residual_TH,
                                      int place) {
  // In place of the branch, unless the residual stream has another type.
  const ConstTensorView branch = branch_TH.view_const();
  Tensor y = branch_TH.dtype() == residual_TH.dtype() ? std::move(branch_TH)
                                                      : pass.exec.empty(residual_TH.shape(), residual_TH.dtype());
  kernels::bias_dropout_add(pass.exec, branch, bias, residual_TH, dropout(pass, place), nn::local_rows(pass), y);
  return y;
}

Tensor TransformerBlock::branch_gradient(nn::Pass& pass, const Tensor& dy_TH, int place) {
  const kernels::DropoutSpec spec = dropout(pass, place);
  if (spec.probability == 0.0 && dy_TH.dtype() == dtype_) return dy_TH;
  Tensor masked = pass.exec.empty(dy_TH.shape(), dtype_);
  if (spec.probability == 0.0)
    kernels::copy(pass.exec, dy_TH, masked);
  else
    kernels::dropout_backward(pass.exec, dy_TH, spec, nn::local_rows(pass), masked);
  return masked;
}

Tensor TransformerBlock::repeat_norm(nn::Pass& pass, nn::Norm& norm, const nn::Norm::Stash& stash) {
  const nn::RecomputeScope scope(pass.exec);
  nn::Pass quiet = nn::with_stash(pass, false);
  nn::Norm::Stash unused;
  return nn::stashed(norm.forward(quiet, stash.x_TH, unused));
}

Tensor TransformerBlock::forward(nn::Pass& pass, const Tensor& x_TH, Stash& stash) {
  Tensor branch =
      self_attention_.forward(pass, input_layernorm_.forward(pass, x_TH, stash.input_layernorm), stash.self_attention);
  const Tensor middle = add_residual(pass, std::move(branch), self_attention_.output_bias(), x_TH, 0);
  branch = mlp_.forward(pass, pre_mlp_layernorm_.forward(pass, middle, stash.pre_mlp_layernorm), stash.mlp);
  if (recompute_norms_) {
    stash.self_attention.linear_qkv.x_TI.reset();
    stash.mlp.linear_fc1.x_TI.reset();
  }
  return add_residual(pass, std::move(branch), mlp_.output_bias(), middle, 1);
}

Tensor TransformerBlock::backward(nn::Pass& pass, Tensor dy_TH, Stash&& stash) {
  if (recompute_norms_) stash.mlp.linear_fc1.x_TI = repeat_norm(pass, pre_mlp_layernorm_, stash.pre_mlp_layernorm);
  Tensor branch = mlp_.backward(pass, branch_gradient(pass, dy_TH, 1), std::move(stash.mlp));
  Tensor d_middle = pre_mlp_layernorm_.backward(pass, std::move(branch), std::move(stash.pre_mlp_layernorm));
  kernels::add_in_place(pass.exec, dy_TH, d_middle);
  dy_TH.reset();
  if (recompute_norms_)
    stash.self_attention.linear_qkv.x_TI = repeat_norm(pass, input_layernorm_, stash.input_layernorm);
  branch = self_attention_.backward(pass, branch_gradient(pass, d_middle, 0), std::move(stash.self_attention));
  Tensor dx = input_layernorm_.backward(pass, std::move(branch), std::move(stash.input_layernorm));
  kernels::add_in_place(pass.exec, d_middle, dx);
  return dx;
}

void TransformerBlock::collect(std::vector<nn::Parameter*>& out) {
  input_layernorm_.collect(out);
  self_attention_.collect(out);
  pre_mlp_layernorm_.collect(out);
  mlp_.collect(out);
}

}  // namespace megatron::model
