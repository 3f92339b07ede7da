#include "nn/attention/head_norm.h"

#include "kernels/norm.h"
#include "nn/norm.h"

namespace megatron::nn {
namespace {

/// Head `head` of each group of a dense [T, N, D] tensor as rows [T·G, D].
TensorView head_rows(TensorView y_TND, std::int64_t head, std::int64_t heads_per_group) {
  const std::int64_t width = y_TND.size(2);
  const std::int64_t rows = y_TND.size(0) * y_TND.size(1) / heads_per_group;
  return strided_view(y_TND, head * width, {rows, width}, {heads_per_group * width, 1});
}

TensorView shifted(TensorView x_MD, std::int64_t head) {
  return strided_view(x_MD, head * x_MD.size(1), x_MD.shape, x_MD.strides);
}

/// Row `head` of [P, M] as a vector; a null view of an undefined tensor.
TensorView row_of(Tensor& tensor, std::int64_t head) {
  if (!tensor.defined()) return {};
  return strided_view(tensor, head * tensor.size(1), {tensor.size(1)}, {1});
}

}  // namespace

HeadNorm::HeadNorm(const LayerSetup& setup, const std::string& name, const spec::NormShape& shape, bool decay)
    : setup_(setup), shape_(shape) {
  const spec::Sharding sharding = spec::replicated(1, shape.width, 1, setup.tp.rank());
  const auto reduction = GradReduction::tensor_parallel;
  weight_ = make_parameter(setup, name + ".weight", sharding, {Initializer::Kind::ones, 0.0}, reduction);
  weight_.decay = decay;
  if (!shape.has_bias()) return;
  bias_ = make_parameter(setup, name + ".bias", sharding, {Initializer::Kind::zeros, 0.0}, reduction);
  bias_.decay = decay;
}

Tensor HeadNorm::forward(Pass& pass, TensorView x_MD, std::int64_t heads_per_group, std::int64_t groups, Stash& stash) {
  const std::int64_t rows = x_MD.size(0);
  Tensor y = pass.exec.empty({rows / groups, groups * heads_per_group, shape_.width}, setup_.dtype);
  Tensor mean, rstd = pass.exec.empty({heads_per_group, rows}, setup_.wide_dtype());
  if (shape_.has_bias()) mean = pass.exec.empty({heads_per_group, rows}, setup_.wide_dtype());
  for (std::int64_t p = 0; p < heads_per_group; ++p)
    kernels::norm_forward(pass.exec, kernel_kind(shape_.kind), shifted(x_MD, p), weight_.value,
                          shape_.has_bias() ? bias_.value.view_const() : ConstTensorView{}, shape_.epsilon,
                          head_rows(y, p, heads_per_group), row_of(mean, p), row_of(rstd, p));
  if (pass.keep_stash) {
    if (mean.defined()) stash.mean_PM = stashed(std::move(mean));
    stash.rstd_PM = stashed(std::move(rstd));
  }
  return y;
}

void HeadNorm::backward(Pass& pass, const Tensor& dy_TND, TensorView x_MD, TensorView dx_MD,
                        std::int64_t heads_per_group, Stash&& stash) {
  Tensor dy = dy_TND;
  const bool bias = shape_.has_bias();
  Tensor dgamma = new_gradient(pass.exec, weight_), dbeta = bias ? new_gradient(pass.exec, bias_) : Tensor();
  for (std::int64_t p = 0; p < heads_per_group; ++p)
    kernels::norm_backward(pass.exec, kernel_kind(shape_.kind), head_rows(dy, p, heads_per_group), shifted(x_MD, p),
                           weight_.value, row_of(stash.mean_PM, p), row_of(stash.rstd_PM, p), shifted(dx_MD, p), dgamma,
                           bias ? dbeta.view() : TensorView{});
  if (bias) pass.weight_grads.push(VectorTask{&bias_, std::move(dbeta)});
  pass.weight_grads.push(VectorTask{&weight_, std::move(dgamma)});
}

void HeadNorm::collect(std::vector<Parameter*>& out) {
  out.push_back(&weight_);
  if (shape_.has_bias()) out.push_back(&bias_);
}

}  // namespace megatron::nn
