#include "nn/norm.h"

#include <utility>

#include "kernels/norm.h"

namespace megatron::nn {
Norm::Norm(const LayerSetup& setup, const std::string& name, const spec::NormShape& shape)
    : setup_(setup), shape_(shape) {
  const auto reduction = setup.sequence_parallel ? GradReduction::tensor_parallel : GradReduction::none;
  const spec::Sharding sharding = spec::replicated(1, shape.width, 1, setup.tp.rank());
  weight_ = make_parameter(setup, name + ".weight", sharding, {Initializer::Kind::ones, 0.0}, reduction);
  if (shape.has_bias())
    bias_ = make_parameter(setup, name + ".bias", sharding, {Initializer::Kind::zeros, 0.0}, reduction);
}

Tensor Norm::forward(Pass& pass, const Tensor& x_TH, Stash& stash) {
  const std::int64_t rows = x_TH.size(0);
  Tensor y = pass.exec.empty({rows, shape_.width}, setup_.dtype);
  Tensor rstd = pass.exec.empty({rows}, setup_.wide_dtype());
  Tensor mean;
  if (shape_.has_bias()) mean = pass.exec.empty({rows}, setup_.wide_dtype());
  kernels::norm_forward(pass.exec, kernel_kind(shape_.kind), x_TH, weight_.value,
                        shape_.has_bias() ? bias_.value.view_const() : ConstTensorView{}, shape_.epsilon, y,
                        shape_.has_bias() ? mean.view() : TensorView{}, rstd);
  if (pass.keep_stash) {
    stash.x_TH = stashed(x_TH);
    if (mean.defined()) stash.mean_T = stashed(std::move(mean));
    stash.rstd_T = stashed(std::move(rstd));
  }
  return y;
}

Tensor Norm::backward(Pass& pass, Tensor dy_TH, Stash&& stash) {
  const ConstTensorView dy = dy_TH.view_const();  // dx takes the place of a gradient that nobody else holds
  const DType dtype = stash.x_TH.dtype();
  Tensor dx = dy_TH.unique() && dy_TH.dtype() == dtype ? std::move(dy_TH) : pass.exec.empty(dy.shape, dtype);
  const bool bias = shape_.has_bias();
  Tensor dgamma = new_gradient(pass.exec, weight_), dbeta = bias ? new_gradient(pass.exec, bias_) : Tensor();
  kernels::norm_backward(pass.exec, kernel_kind(shape_.kind), dy, stash.x_TH, weight_.value,
                         bias ? stash.mean_T.view_const() : ConstTensorView{}, stash.rstd_T, dx, dgamma,
                         bias ? dbeta.view() : TensorView{});
  stash = Stash();
  if (bias) pass.weight_grads.push(VectorTask{&bias_, std::move(dbeta)});
  pass.weight_grads.push(VectorTask{&weight_, std::move(dgamma)});
  return dx;
}

void Norm::collect(std::vector<Parameter*>& out) {
  out.push_back(&weight_);
  if (shape_.has_bias()) out.push_back(&bias_);
}

}  // namespace megatron::nn
