// Token table cut over the vocabulary (arXiv 1909.08053 §3), learned positions, dropout.
// Legend: T tokens, V vocabulary, H hidden. A rank looks up the ids of its rows, others give zero; the sum over ranks
// is whole, or this rank's token shard under sequence parallelism.
#pragma once

#include "nn/layer.h"
#include "spec/block_shape.h"

namespace megatron::nn {

struct EmbeddingOptions {
  Initializer word_init, position_init;
  double dropout = 0.0;
};

class Embedding {
 public:
  Embedding(const LayerSetup& setup, const spec::EmbeddingShape& shape, const EmbeddingOptions& options);
  Embedding(const Embedding&) = delete;
  Embedding& operator=(const Embedding&) = delete;

  /// The micro-batch's tokens → [T, H] or the token shard [T/n, H]. Keeps nothing: ids and masks are functions of the
  /// batch.
  Tensor forward(Pass& pass);
  void backward(Pass& pass, Tensor dy_TH);

  Parameter& word_embeddings() { return word_; }
  void collect(std::vector<Parameter*>& out);

 private:
  kernels::DropoutSpec dropout(const Pass& pass) const;

  LayerSetup setup_;
  spec::EmbeddingShape shape_;
  EmbeddingOptions options_;
  Parameter word_, position_;
};

}  // namespace megatron::nn
