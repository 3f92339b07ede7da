#include "nn/mlp.h"

#include "nn/recompute.h"

namespace megatron::nn {
namespace {

kernels::ActivationKind kernel_kind(spec::Activation activation) {
  switch (activation) {
    case spec::Activation::gelu_tanh:
      return kernels::ActivationKind::gelu_tanh;
    case spec::Activation::gelu_erf:
      return kernels::ActivationKind::gelu_erf;
    case spec::Activation::squared_relu:
      return kernels::ActivationKind::squared_relu;
    case spec::Activation::silu:
      return kernels::ActivationKind::silu;
  }
  throw Error("unknown activation");
}

spec::Sharding fc1_sharding(const LayerSetup& setup, const spec::MlpShape& shape, int num_dims) {
  const std::int64_t cols = num_dims == 1 ? 1 : shape.hidden;
  const int rank = setup.tp.rank(), size = setup.tp.size();
  return shape.gated ? spec::gated_shard(num_dims, shape.ffn, cols, rank, size)
                     : spec::row_shard(num_dims, shape.ffn, shape.ffn, cols, rank, size);
}

}  // namespace

Mlp::Mlp(const LayerSetup& setup, const std::string& name, const spec::MlpShape& shape, const MlpOptions& options)
    : setup_(setup),
      shape_(shape),
      recompute_(options.recompute),
      activation_(kernel_kind(options.activation)),
      linear_fc1_(setup, name + ".linear_fc1", shape.linear_fc1(), fc1_sharding(setup, shape, 2),
                  fc1_sharding(setup, shape, 1), options.fc1_init),
      linear_fc2_(setup, name + ".linear_fc2", shape.linear_fc2(), options.fc2_init) {}

Tensor Mlp::activate(Pass& pass, const Tensor& h_TF, bool keep) {
  // Without backward the plain activation needs no second tensor.
  const bool in_place = !keep && !shape_.gated;
  Tensor a = in_place ? h_TF : pass.exec.empty({h_TF.size(0), shape_.linear_fc2().local_in}, setup_.dtype);
  if (shape_.gated)
    kernels::gated_activation_forward(pass.exec, activation_, h_TF, a);
  else
    kernels::activation_forward(pass.exec, activation_, h_TF, a);
  return a;
}

Tensor Mlp::forward(Pass& pass, const Tensor& x_TH, Stash& stash) {
  Tensor h = linear_fc1_.forward(pass, x_TH, stash.linear_fc1);
  const bool keep = pass.keep_stash && !recompute_;
  const Tensor a = activate(pass, h, keep);
  if (keep) stash.h_TF = stashed(std::move(h));
  h = Tensor();
  Pass output_pass = with_stash(pass, keep);
  return linear_fc2_.forward(output_pass, a, stash.linear_fc2);
}

Tensor Mlp::backward(Pass& pass, Tensor dy_TH, Stash&& stash) {
  if (recompute_) {
    const RecomputeScope scope(pass.exec);
    const Tensor x = stash.linear_fc1.x_TI;
    stash.h_TF = stashed(linear_fc1_.forward(pass, x, stash.linear_fc1));
    stash.linear_fc2.x_TI = stashed(activate(pass, stash.h_TF, /*keep=*/true));
  }
  Tensor da = linear_fc2_.backward(pass, std::move(dy_TH), std::move(stash.linear_fc2));
  Tensor h = std::move(stash.h_TF);
  Tensor dh;
  if (shape_.gated) {
    dh = h.unique() ? h : pass.exec.empty(h.shape(), setup_.dtype);
    kernels::gated_activation_backward(pass.exec, activation_, da, h, dh);
  } else {
    dh = da;
    kernels::activation_backward(pass.exec, activation_, da, h, dh);
  }
  da.reset();
  h.reset();
  return linear_fc1_.backward(pass, std::move(dh), std::move(stash.linear_fc1));
}

void Mlp::collect(std::vector<Parameter*>& out) {
  linear_fc1_.collect(out);
  linear_fc2_.collect(out);
}

}  // namespace megatron::nn
