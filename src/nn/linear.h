// Linear layers cut over the tensor-parallel group (arXiv 1909.08053 §3, 2205.05198 §4.2): y = x·Wᵀ (+ b).
// Legend: T tokens, I input features, O output features; suffixes stay when a dim is cut.
// ColumnParallel: W's rows (outputs) are cut; x is whole or a token shard, y has this rank's columns of all tokens.
// RowParallel: W's columns (inputs) are cut; x has this rank's columns of all tokens, y is summed over ranks: whole, or
// the token shard. Its bias belongs to the caller's fused bias–dropout–residual and is not added here.
#pragma once

#include "nn/layer.h"
#include "spec/block_shape.h"

namespace megatron::nn {

class ColumnParallelLinear {
 public:
  struct Stash {
    Tensor x_TI;  // what forward got: the token shard under sequence parallelism
    template <typename F>
    void visit(F&& f) const {
      f("x", x_TI);
    }
  };

  /// `name` without ".weight". `weight` and `bias` lay [out, in] and [out] over ranks.
  ColumnParallelLinear(const LayerSetup& setup, const std::string& name, const spec::LinearShape& shape,
                       const spec::Sharding& weight, const spec::Sharding& bias, Initializer init,
                       GradReduction reduction = GradReduction::none);
  ColumnParallelLinear(const ColumnParallelLinear&) = delete;
  ColumnParallelLinear& operator=(const ColumnParallelLinear&) = delete;

  /// [T, in] or [T/n, in] → [T, local_out], bias added.
  Tensor forward(Pass& pass, const Tensor& x_TI, Stash& stash);
  /// dy [T, local_out] → dx, shaped as x. The sum over ranks of dx runs while the weight gradient is computed.
  Tensor backward(Pass& pass, Tensor dy_TO, Stash&& stash);

  Parameter& weight() { return weight_; }
  Parameter* bias() { return shape_.bias ? &bias_ : nullptr; }
  void collect(std::vector<Parameter*>& out);

 private:
  LayerSetup setup_;
  spec::LinearShape shape_;
  Parameter weight_, bias_;
};

class RowParallelLinear {
 public:
  struct Stash {
    Tensor x_TI;
    template <typename F>
    void visit(F&& f) const {
      f("x", x_TI);
    }
  };

  RowParallelLinear(const LayerSetup& setup, const std::string& name, const spec::LinearShape& shape, Initializer init);
  RowParallelLinear(const RowParallelLinear&) = delete;
  RowParallelLinear& operator=(const RowParallelLinear&) = delete;

  /// [T, local_in] → [T, out] or [T/n, out], without the bias. Keeps x.
  Tensor forward(Pass& pass, const Tensor& x_TI, Stash& stash);
  /// dy [T, out] or [T/n, out] → dx [T, local_in]. The bias gradient is the column sum of dy; of the shard under
  /// sequence parallelism (GradReduction::tensor_parallel).
  Tensor backward(Pass& pass, Tensor dy_TO, Stash&& stash);

  Parameter& weight() { return weight_; }
  /// A null view without bias.
  ConstTensorView bias_view() const { return shape_.bias ? bias_.value.view_const() : ConstTensorView{}; }
  void collect(std::vector<Parameter*>& out);

 private:
  LayerSetup setup_;
  spec::LinearShape shape_;
  Parameter weight_, bias_;
};

}  // namespace megatron::nn
