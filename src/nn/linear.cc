#include "nn/linear.h"

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "mesh/mappings.h"

namespace megatron::nn {

using kernels::Transpose;

ColumnParallelLinear::ColumnParallelLinear(const LayerSetup& setup, const std::string& name,
                                           const spec::LinearShape& shape, const spec::Sharding& weight,
                                           const spec::Sharding& bias, Initializer init, GradReduction reduction)
    : setup_(setup), shape_(shape), weight_(make_parameter(setup, name + ".weight", weight, init, reduction)) {
  MEGATRON_CHECK_EQ(weight.local_rows, shape.local_out, name);
  MEGATRON_CHECK_EQ(weight.local_cols, shape.local_in, name);
  if (!shape.bias) return;
  MEGATRON_CHECK_EQ(bias.local_rows, shape.local_out, name);
  bias_ = make_parameter(setup, name + ".bias", bias, {Initializer::Kind::zeros, 0.0}, reduction);
}

Tensor ColumnParallelLinear::forward(Pass& pass, const Tensor& x_TI, Stash& stash) {
  Tensor whole = x_TI;
  if (token_sharded(pass, setup_)) whole = mesh::gather_along_tokens(pass.exec, setup_.tp, x_TI, weight_.name).wait();
  Tensor y = pass.exec.empty({whole.size(0), shape_.local_out}, setup_.dtype);
  kernels::matmul(pass.exec, whole, Transpose::no, weight_.value, Transpose::yes, y);
  if (shape_.bias) kernels::add_bias(pass.exec, bias_.value, y);
  if (pass.keep_stash) stash.x_TI = stashed(x_TI);
  return y;
}

Tensor ColumnParallelLinear::backward(Pass& pass, Tensor dy_TO, Stash&& stash) {
  const bool sharded = token_sharded(pass, setup_);
  // The gather of x runs while dx is computed, the reduction of dx while the weight gradient is.
  comm::Pending<Tensor> x = sharded ? mesh::gather_along_tokens(pass.exec, setup_.tp, stash.x_TI, weight_.name)
                                    : comm::Pending<Tensor>(stash.x_TI);
  stash.x_TI.reset();
  Tensor dx = pass.exec.empty({dy_TO.size(0), shape_.local_in}, setup_.dtype);
  kernels::matmul(pass.exec, dy_TO, Transpose::no, weight_.value, Transpose::no, dx);
  comm::Pending<Tensor> reduced =
      sharded ? mesh::reduce_scatter_along_tokens(pass.exec, setup_.tp, std::move(dx), weight_.name)
              : setup_.tp.all_reduce_async(std::move(dx), weight_.name);
  pass.weight_grads.push(LinearTask{&weight_, bias(), x.wait(), std::move(dy_TO)});
  return reduced.wait();
}

void ColumnParallelLinear::collect(std::vector<Parameter*>& out) {
  out.push_back(&weight_);
  if (shape_.bias) out.push_back(&bias_);
}

RowParallelLinear::RowParallelLinear(const LayerSetup& setup, const std::string& name, const spec::LinearShape& shape,
                                     Initializer init)
    : setup_(setup),
      shape_(shape),
      weight_(make_parameter(setup, name + ".weight",
                             spec::column_shard(shape.out, shape.in, setup.tp.rank(), setup.tp.size()), init)) {
  MEGATRON_CHECK_EQ(weight_.sharding.local_cols, shape.local_in, name);
  if (!shape.bias) return;
  bias_ = make_parameter(setup, name + ".bias", spec::replicated(1, shape.out, 1, setup.tp.rank()),
                         {Initializer::Kind::zeros, 0.0},
                         setup.sequence_parallel ? GradReduction::tensor_parallel : GradReduction::none);
}

Tensor RowParallelLinear::forward(Pass& pass, const Tensor& x_TI, Stash& stash) {
  Tensor y = pass.exec.empty({x_TI.size(0), shape_.out}, setup_.dtype);
  kernels::matmul(pass.exec, x_TI, Transpose::no, weight_.value, Transpose::yes, y);
  if (pass.keep_stash) stash.x_TI = stashed(x_TI);
  if (token_sharded(pass, setup_))
    return mesh::reduce_scatter_along_tokens(pass.exec, setup_.tp, std::move(y), weight_.name).wait();
  return setup_.tp.all_reduce(std::move(y), weight_.name);
}

Tensor RowParallelLinear::backward(Pass& pass, Tensor dy_TO, Stash&& stash) {
  comm::Pending<Tensor> gathered(dy_TO);
  if (token_sharded(pass, setup_)) gathered = mesh::gather_along_tokens(pass.exec, setup_.tp, dy_TO, weight_.name);
  if (shape_.bias && bias_.trainable) {
    Tensor grad = new_gradient(pass.exec, bias_);
    kernels::bias_grad(pass.exec, dy_TO, grad);
    pass.weight_grads.push(VectorTask{&bias_, std::move(grad)});
  }
  dy_TO = gathered.wait();
  Tensor dx = pass.exec.empty({dy_TO.size(0), shape_.local_in}, setup_.dtype);
  kernels::matmul(pass.exec, dy_TO, Transpose::no, weight_.value, Transpose::no, dx);
  pass.weight_grads.push(LinearTask{&weight_, nullptr, std::move(stash.x_TI), std::move(dy_TO)});
  return dx;
}

void RowParallelLinear::collect(std::vector<Parameter*>& out) {
  out.push_back(&weight_);
  if (shape_.bias) out.push_back(&bias_);
}

}  // namespace megatron::nn
