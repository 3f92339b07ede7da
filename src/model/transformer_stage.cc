#include "model/transformer_stage.h"

#include <utility>

#include "mesh/mappings.h"
#include "model/stage_stash.h"

namespace megatron::model {
namespace {

spec::TensorLayout tensor_layout(const nn::LayerSetup& setup) { return {setup.tp.size(), setup.sequence_parallel}; }

void observe(const nn::Pass& pass, std::int64_t layer, const Tensor& hidden) {
  if (pass.observe_hidden) pass.observe_hidden(layer, hidden);
}

}  // namespace

TransformerStage::TransformerStage(const nn::LayerSetup& setup, const spec::ModelSpec& model, const StageLayout& layout,
                                   bool decay_head_norms, nn::Parameter* table)
    : setup_(setup), layout_(layout) {
  const Initializers init = make_initializers(model);
  const spec::TensorLayout cut = tensor_layout(setup);
  if (layout.first) {
    embedding_.emplace(setup, spec::embedding_shape(model, cut),
                       nn::EmbeddingOptions{init.word, init.position, model.hidden_dropout});
    embedding_->word_embeddings().shared_embedding = model.tied();
    embedding_->collect(embedding_unit_);
  }
  std::shared_ptr<const nn::RopeTable> rope;
  if (model.position_embedding == spec::PositionEmbedding::rope && layout.num_layers > 0)
    rope = std::make_shared<nn::RopeTable>(nn::make_rope_table(setup.allocator, model, setup.wide_dtype()));
  for (std::int64_t i = 0; i < layout.num_layers; ++i) {
    blocks_.push_back(std::make_unique<TransformerBlock>(setup, model, spec::block_shape(model, cut), init,
                                                         layout.first_layer + i, layout.first_local_layer + i,
                                                         decay_head_norms, rope));
    blocks_.back()->collect(block_units_.emplace_back());
  }
  if (layout.last) {
    final_layernorm_.emplace(setup, "decoder.final_layernorm", spec::norm_shape(model));
    final_layernorm_->collect(head_unit_);
    head_.emplace(setup, spec::head_shape(model, cut), init.head, model.tied(), layout.first ? shared_table() : table);
    head_->collect(head_unit_);
  }
  parameters_ = embedding_unit_;
  for (const auto& unit : block_units_) parameters_.insert(parameters_.end(), unit.begin(), unit.end());
  parameters_.insert(parameters_.end(), head_unit_.begin(), head_unit_.end());
}

nn::Parameter* TransformerStage::shared_table() {
  return embedding_.has_value() && embedding_->word_embeddings().shared_embedding ? &embedding_->word_embeddings()
                                                                                  : nullptr;
}

Tensor TransformerStage::forward_body(nn::Pass& pass, const Tensor& input, StageStash::Contents& stash) {
  Tensor hidden = input;
  if (layout_.first) {
    const nn::ParameterUse use(pass.parameter_gate, embedding_unit_);
    hidden = embedding_->forward(pass);
  }
  MEGATRON_CHECK_EQ(hidden.size(0), pass.batch.shard_end - pass.batch.shard_begin, "rows of the stage's input");
  if (layout_.first_layer == 0) observe(pass, 0, hidden);
  stash.blocks.resize(pass.keep_stash ? blocks_.size() : 0);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const nn::ParameterUse use(pass.parameter_gate, block_units_[i]);
    TransformerBlock::Stash unused;
    hidden = blocks_[i]->forward(pass, hidden, pass.keep_stash ? stash.blocks[i] : unused);
    observe(pass, layout_.first_layer + static_cast<std::int64_t>(i) + 1, hidden);
  }
  return hidden;
}

Tensor TransformerStage::forward(nn::Pass& pass, const Tensor& input, StageStash& stash) {
  auto contents = std::make_unique<StageStash::Contents>();
  Tensor output = forward_body(pass, input, *contents);
  if (layout_.last) {
    const nn::ParameterUse use(pass.parameter_gate, head_unit_);
    const Tensor normed = final_layernorm_->forward(pass, output, contents->final_layernorm);
    output.reset();
    output = head_->forward(pass, normed, contents->head);
    contents->has_head = pass.keep_stash;
  }
  if (pass.keep_stash) stash.contents = std::move(contents);
  return output;
}

Tensor TransformerStage::backward(nn::Pass& pass, Tensor d_output, StageStash&& stash) {
  MEGATRON_CHECK(stash.contents != nullptr, "backward of micro-batch ", pass.batch.index, " without its stash");
  StageStash::Contents& contents = *stash.contents;
  Tensor d_hidden = std::move(d_output);
  if (layout_.last) {
    const nn::ParameterUse use(pass.parameter_gate, head_unit_);
    d_hidden = head_->backward(pass, std::move(contents.head));
    d_hidden = final_layernorm_->backward(pass, std::move(d_hidden), std::move(contents.final_layernorm));
  }
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const nn::ParameterUse use(pass.parameter_gate, block_units_[i]);
    d_hidden = blocks_[i]->backward(pass, std::move(d_hidden), std::move(contents.blocks[i]));
  }
  stash.contents.reset();
  if (!layout_.first) return d_hidden;
  embedding_->backward(pass, std::move(d_hidden));
  return Tensor();
}

Tensor TransformerStage::forward_logits(nn::Pass& pass, const Tensor& input, std::int64_t row_begin,
                                        std::int64_t row_end) {
  MEGATRON_CHECK(layout_.last, "logits of a stage without a head");
  MEGATRON_CHECK(!pass.keep_stash, "logits have no backward");
  StageStash::Contents unused;
  Tensor hidden = forward_body(pass, input, unused);
  if (nn::token_sharded(pass, setup_))
    hidden = mesh::gather_along_tokens(pass.exec, setup_.tp, std::move(hidden), "hidden for logits").wait();
  const nn::ParameterUse use(pass.parameter_gate, head_unit_);
  nn::Norm::Stash no_stash;
  const Tensor normed = final_layernorm_->forward(pass, hidden.slice(0, row_begin, row_end), no_stash);
  return head_->logits(pass, normed);
}

}  // namespace megatron::model
