// LayerNorm or RMSNorm over the hidden dim. Legend: T tokens (the shard under sequence parallelism), H features.
// Statistics are per token: no communication is needed however the tokens are cut. Only the gradients of the weights
// are sums over tokens, which ranks complete at the end of a step (GradReduction::tensor_parallel).
#pragma once

#include "kernels/norm.h"
#include "nn/layer.h"
#include "spec/block_shape.h"

namespace megatron::nn {

inline kernels::NormKind kernel_kind(spec::Normalization kind) {
  return kind == spec::Normalization::layer_norm ? kernels::NormKind::layer_norm : kernels::NormKind::rms_norm;
}

class Norm {
 public:
  struct Stash {
    Tensor x_TH, mean_T, rstd_T;  // mean of LayerNorm only
    template <typename F>
    void visit(F&& f) const {
      f("x", x_TH);
      if (mean_T.defined()) f("mean", mean_T);
      f("rstd", rstd_T);
    }
  };

  Norm(const LayerSetup& setup, const std::string& name, const spec::NormShape& shape);
  Norm(const Norm&) = delete;
  Norm& operator=(const Norm&) = delete;

  /// [T, H] → a new tensor of the same shape. The stash (if kept) shares x's memory, which must not change until
  /// backward.
  Tensor forward(Pass& pass, const Tensor& x_TH, Stash& stash);
  /// Gradient of the output → gradient of x, written over dy_TH if that is unique. The weights'
  /// gradients are sums over tokens as in kernels/norm.h (level 0).
  Tensor backward(Pass& pass, Tensor dy_TH, Stash&& stash);
  void collect(std::vector<Parameter*>& out);

 private:
  LayerSetup setup_;
  spec::NormShape shape_;
  Parameter weight_, bias_;
};

}  // namespace megatron::nn
