// The norm of every query or key head before rotary embedding (--qk-layernorm): one weight of a head's width for all
// heads. Legend: T tokens, G groups, P heads per group, N = G·P, D head size.
#pragma once

#include "nn/layer.h"
#include "spec/block_shape.h"

namespace megatron::nn {

class HeadNorm {
 public:
  struct Stash {
    Tensor mean_PM, rstd_PM;  // M = T·G rows, per head of a group; mean of LayerNorm only
    template <typename F>
    void visit(F&& f) const {
      if (mean_PM.defined()) f("mean", mean_PM);
      f("rstd", rstd_PM);
    }
  };

  /// Ranks see different heads: the gradient of the weight is summed over tensor parallelism.
  HeadNorm(const LayerSetup& setup, const std::string& name, const spec::NormShape& shape, bool decay);
  HeadNorm(const HeadNorm&) = delete;
  HeadNorm& operator=(const HeadNorm&) = delete;

  /// `x`: the first head of each group in a dense mixed tensor, as rows [M, D] with any row stride; head p of a group
  /// starts p·D elements further. Returns [T, N, D].
  Tensor forward(Pass& pass, TensorView x_MD, std::int64_t heads_per_group, std::int64_t groups, Stash& stash);
  /// dy [T, N, D]; dx is written where dx_MD (laid out as x) points.
  void backward(Pass& pass, const Tensor& dy_TND, TensorView x_MD, TensorView dx_MD, std::int64_t heads_per_group,
                Stash&& stash);
  void collect(std::vector<Parameter*>& out);

 private:
  LayerSetup setup_;
  spec::NormShape shape_;
  Parameter weight_, bias_;
};

}  // namespace megatron::nn
