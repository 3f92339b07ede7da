#include "nn/embedding.h"

#include "kernels/embedding.h"
#include "mesh/mappings.h"

namespace megatron::nn {

Embedding::Embedding(const LayerSetup& setup, const spec::EmbeddingShape& shape, const EmbeddingOptions& options)
    : setup_(setup), shape_(shape), options_(options) {
  word_ = make_parameter(
      setup, "embedding.word_embeddings.weight",
      spec::row_shard(2, shape.vocab, shape.padded_vocab, shape.hidden, setup.tp.rank(), setup.tp.size()),
      options.word_init);
  if (shape.positions == 0) return;
  position_ = make_parameter(setup, "embedding.position_embeddings.weight",
                             spec::replicated(2, shape.positions, shape.hidden, setup.tp.rank()), options.position_init,
                             setup.sequence_parallel ? GradReduction::tensor_parallel : GradReduction::none);
}

kernels::DropoutSpec Embedding::dropout(const Pass& pass) const {
  if (!pass.training() || options_.dropout == 0.0) return {};
  return {options_.dropout, make_philox_key(pass.seed, RandomPurpose::embedding_dropout, 0), 0};
}

Tensor Embedding::forward(Pass& pass) {
  const MicroBatch& batch = pass.batch;
  Tensor y = pass.exec.empty({batch.num_tokens, shape_.hidden}, setup_.residual_dtype());
  kernels::embedding_forward(pass.exec, word_.value, batch.ids.data(), setup_.tp.rank() * shape_.local_vocab(), y);
  y = token_sharded(pass, setup_)
          ? mesh::reduce_scatter_along_tokens(pass.exec, setup_.tp, std::move(y), word_.name).wait()
          : setup_.tp.all_reduce(std::move(y), word_.name);
  if (shape_.positions > 0) {
    Tensor positions = pass.exec.empty(y.shape(), setup_.residual_dtype());
    kernels::embedding_forward(pass.exec, position_.value, batch.shard_tokens.position.data(), 0, positions);
    kernels::add_in_place(pass.exec, positions, y);
  }
  const kernels::DropoutSpec spec = dropout(pass);
  if (spec.probability > 0.0) kernels::bias_dropout_add(pass.exec, y, {}, {}, spec, local_rows(pass), y);
  return y;
}

void Embedding::backward(Pass& pass, Tensor dy_TH) {
  const MicroBatch& batch = pass.batch;
  if (const kernels::DropoutSpec spec = dropout(pass); spec.probability > 0.0) {
    Tensor masked = dy_TH.unique() ? dy_TH : pass.exec.empty(dy_TH.shape(), setup_.residual_dtype());
    kernels::dropout_backward(pass.exec, dy_TH, spec, local_rows(pass), masked);
    dy_TH = std::move(masked);
  }
  comm::Pending<Tensor> whole(dy_TH);
  if (token_sharded(pass, setup_)) whole = mesh::gather_along_tokens(pass.exec, setup_.tp, dy_TH, word_.name);
  if (shape_.positions > 0)
    pass.weight_grads.push(EmbeddingTask{&position_, batch.shard_tokens.position.data(), 0, dy_TH});
  dy_TH.reset();
  pass.weight_grads.push(
      EmbeddingTask{&word_, batch.ids.data(), setup_.tp.rank() * shape_.local_vocab(), whole.wait()});
}

void Embedding::collect(std::vector<Parameter*>& out) {
  out.push_back(&word_);
  if (shape_.positions > 0) out.push_back(&position_);
}

}  // namespace megatron::nn
