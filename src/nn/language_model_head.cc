#include "nn/language_model_head.h"

#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "mesh/mappings.h"

namespace megatron::nn {
namespace {

using kernels::Transpose;

static_assert(spec::HeadShape::kTileTokens % kernels::kMatmulChunk == 0, "see HeadShape");

/// loss = log Σexp − (label's logit − max), per token.
template <typename T>
void token_losses(const Tensor& statistics_2T, Tensor& loss_T) {
  const std::int64_t tokens = loss_T.size(0);
  const T* sum_exp = statistics_2T.data<T>();
  const T* target = sum_exp + tokens;
  T* loss = loss_T.data<T>();
  for (std::int64_t t = 0; t < tokens; ++t)
    loss[t] = static_cast<T>(std::log(static_cast<double>(sum_exp[t])) - static_cast<double>(target[t]));
}

template <typename T>
void fill_seed(const std::vector<float>& mask, double backward_scale, Tensor& seed_T) {
  T* seed = seed_T.data<T>();
  for (std::size_t t = 0; t < mask.size(); ++t) seed[t] = static_cast<T>(static_cast<double>(mask[t]) * backward_scale);
}

}  // namespace

LanguageModelHead::LanguageModelHead(const LayerSetup& setup, const spec::HeadShape& shape, Initializer init, bool tied,
                                     const Parameter* table)
    : setup_(setup), shape_(shape) {
  const spec::Sharding sharding =
      spec::row_shard(2, shape.vocab, shape.padded_vocab, shape.hidden, setup.tp.rank(), setup.tp.size());
  if (table == nullptr) {
    weight_ = make_parameter(setup, tied ? "embedding.word_embeddings.weight" : "output_layer.weight", sharding, init);
  } else {
    MEGATRON_CHECK(tied, "an untied head has a matrix of its own");
    weight_.name = table->name;
    weight_.sharding = sharding;
    weight_.init = table->init;
    weight_.value = table->value;
  }
  weight_.tied_use = tied;
}

std::int64_t LanguageModelHead::valid_columns() const {
  return std::clamp<std::int64_t>(shape_.vocab - first_column(), 0, shape_.local_vocab());
}

void LanguageModelHead::project(Pass& pass, const Tensor& x_TH, TensorView logits) {
  kernels::matmul(pass.exec, x_TH, Transpose::no, weight_.value, Transpose::yes, logits);
}

Tensor LanguageModelHead::loss_seed(Pass& pass) const {
  Tensor seed = pass.exec.empty({pass.batch.num_tokens}, setup_.wide_dtype());
  if (seed.is_meta()) return seed;
  MEGATRON_CHECK_EQ(static_cast<std::int64_t>(pass.batch.loss_mask.size()), pass.batch.num_tokens, "loss mask");
  if (setup_.dtype == DType::float64)
    fill_seed<double>(pass.batch.loss_mask, pass.backward_scale, seed);
  else
    fill_seed<float>(pass.batch.loss_mask, pass.backward_scale, seed);
  return seed;
}

void LanguageModelHead::forward_tile(Pass& pass, const Tensor& x_TH, std::int64_t begin, Tensor logits,
                                     const Tensor* seed_T, Tensor& loss_T, Tensor& dx_TH, Stash& stash) {
  const std::int64_t tokens = logits.size(0), end = begin + tokens;
  const bool last = end == loss_T.size(0);
  const std::int64_t* labels = loss_T.is_meta() ? nullptr : pass.batch.labels.data() + begin;
  const Tensor x = x_TH.slice(0, begin, end);
  project(pass, x, logits);
  Tensor max = pass.exec.empty({tokens}, setup_.wide_dtype());
  kernels::row_max(pass.exec, logits, valid_columns(), max);
  max = setup_.tp.all_reduce(std::move(max), "softmax max", comm::ReduceOp::max);
  // Both sums travel together: Σexp and the label's logit, which one rank has and the others give as zero.
  Tensor statistics = pass.exec.empty({2, tokens}, setup_.wide_dtype());
  Tensor sum_exp = statistics.slice(0, 0, 1).reshape({tokens});
  Tensor target = statistics.slice(0, 1, 2).reshape({tokens});
  kernels::softmax_statistics(pass.exec, logits, valid_columns(), max, labels, first_column(), sum_exp, target);
  target.reset();
  sum_exp.reset();
  statistics = setup_.tp.all_reduce(std::move(statistics), "softmax sums");
  Tensor loss = loss_T.slice(0, begin, end);
  if (!loss.is_meta()) {
    if (setup_.dtype == DType::float64)
      token_losses<double>(statistics, loss);
    else
      token_losses<float>(statistics, loss);
  }
  if (seed_T == nullptr) return;
  kernels::softmax_gradient_in_place(pass.exec, logits, valid_columns(), max,
                                     statistics.slice(0, 0, 1).reshape({tokens}), labels, first_column(),
                                     seed_T->slice(0, begin, end));
  kernels::matmul(pass.exec, logits, Transpose::no, weight_.value, Transpose::no, dx_TH.slice(0, begin, end));
  LinearTask task{&weight_, nullptr, x, std::move(logits), last};
  if (!pass.weights_apart) return pass.weight_grads.push(std::move(task));
  task.x.set_kind(MemoryKind::stash);
  task.dy.set_kind(MemoryKind::stash);
  stash.weight_grad.push_back(std::move(task));
}

Tensor LanguageModelHead::forward(Pass& pass, const Tensor& x_TH, Stash& stash) {
  const std::int64_t tokens = pass.batch.num_tokens;
  const bool sharded = token_sharded(pass, setup_);
  Tensor whole = x_TH;
  if (sharded) whole = mesh::gather_along_tokens(pass.exec, setup_.tp, x_TH, weight_.name).wait();
  Tensor loss = pass.exec.empty({tokens}, setup_.wide_dtype()), seed, dx;
  if (pass.keep_stash) {
    seed = loss_seed(pass);
    dx = pass.exec.empty({tokens, shape_.hidden}, setup_.dtype);
  }
  // One memory for all tiles, unless they live on.
  const std::int64_t tile = std::min(tokens, spec::HeadShape::kTileTokens);
  Tensor memory;
  for (std::int64_t begin = 0; begin < tokens; begin += tile) {
    if (!memory.defined() || pass.weights_apart)
      memory = pass.exec.empty({std::min(tile, tokens - begin), shape_.local_vocab()}, setup_.dtype);
    forward_tile(pass, whole, begin, memory.slice(0, 0, std::min(tile, tokens - begin)),
                 pass.keep_stash ? &seed : nullptr, loss, dx, stash);
  }
  memory.reset();
  whole.reset();
  if (!pass.keep_stash) return loss;
  stash.dx_TH =
      stashed(sharded ? mesh::reduce_scatter_along_tokens(pass.exec, setup_.tp, std::move(dx), weight_.name).wait()
                      : setup_.tp.all_reduce(std::move(dx), weight_.name));
  return loss;
}

Tensor LanguageModelHead::backward(Pass& pass, Stash&& stash) {
  for (LinearTask& task : stash.weight_grad) pass.weight_grads.push(std::move(task));
  stash.weight_grad.clear();
  return std::move(stash.dx_TH);
}

Tensor LanguageModelHead::logits(Pass& pass, const Tensor& x_TH) {
  Tensor local = pass.exec.empty({x_TH.size(0), shape_.local_vocab()}, setup_.wide_dtype());
  project(pass, x_TH, local);
  Tensor whole = mesh::gather_along_hidden(pass.exec, setup_.tp, std::move(local), "logits");
  if (shape_.vocab == shape_.padded_vocab) return whole;
  Tensor cut = pass.exec.empty({whole.size(0), shape_.vocab}, setup_.wide_dtype());
  kernels::copy(pass.exec, whole.slice(1, 0, shape_.vocab), cut);
  return cut;
}

}  // namespace megatron::nn
