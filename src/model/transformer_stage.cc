#include "model/transformer_stage.h"

#include <deque>
#include <utility>

#include "kernels/elementwise.h"
#include "mesh/mappings.h"
#include "model/stage_stash.h"
#include "nn/recompute.h"

namespace megatron::model {
namespace {

spec::TensorLayout tensor_layout(const nn::LayerSetup& setup) { return {setup.tp.size(), setup.sequence_parallel}; }

/// Appends the parameters of a part to those of its unit.
template <typename Part>
void collect_unit(Part& part, std::int64_t number, std::vector<nn::Parameter*>& unit) {
  const std::size_t before = unit.size();
  part.collect(unit);
  for (std::size_t i = before; i < unit.size(); ++i) unit[i]->bucket_group = number;
}

void observe(const nn::Pass& pass, std::int64_t layer, const Tensor& hidden) {
  if (pass.observe_hidden) pass.observe_hidden(layer, hidden);
}

}  // namespace

TransformerStage::TransformerStage(const nn::LayerSetup& setup, const spec::ModelSpec& model, const StageLayout& layout,
                                   bool decay_head_norms, const spec::RecomputeSpec& recompute, nn::Parameter* table)
    : setup_(setup),
      layout_(layout),
      hidden_size_(model.hidden_size),
      distribute_saved_(recompute.distribute_saved_activations && !setup.tp.trivial()),
      groups_(recompute.groups(layout.num_layers)) {
  const Initializers init = make_initializers(model);
  const spec::TensorLayout cut = tensor_layout(setup);
  if (layout.first) {
    embedding_.emplace(setup, spec::embedding_shape(model, cut),
                       nn::EmbeddingOptions{init.word, init.position, model.hidden_dropout});
    embedding_->word_embeddings().shared_embedding = model.tied();
    collect_unit(*embedding_, 0, embedding_unit_);
  }
  std::shared_ptr<const nn::RopeTable> rope;
  if (model.position_embedding == spec::PositionEmbedding::rope && layout.num_layers > 0)
    rope = std::make_shared<nn::RopeTable>(nn::make_rope_table(setup.allocator, model, setup.wide_dtype()));
  for (std::int64_t i = 0; i < layout.num_layers; ++i) {
    blocks_.push_back(std::make_unique<TransformerBlock>(setup, model, spec::block_shape(model, cut), init,
                                                         layout.first_layer + i, layout.first_local_layer + i,
                                                         decay_head_norms, rope, recompute.active_modules()));
    collect_unit(*blocks_.back(), layout.first_layer + i + 1, block_units_.emplace_back());
  }
  if (layout.last) {
    final_layernorm_.emplace(setup, "decoder.final_layernorm", spec::norm_shape(model));
    collect_unit(*final_layernorm_, model.num_layers + 1, head_unit_);
    head_.emplace(setup, spec::head_shape(model, cut), init.head, model.tied(), layout.first ? shared_table() : table);
    collect_unit(*head_, model.num_layers + 2, head_unit_);
  }
  parameters_ = embedding_unit_;
  for (const auto& unit : block_units_) parameters_.insert(parameters_.end(), unit.begin(), unit.end());
  parameters_.insert(parameters_.end(), head_unit_.begin(), head_unit_.end());
}

nn::Parameter* TransformerStage::shared_table() {
  return embedding_.has_value() && embedding_->word_embeddings().shared_embedding ? &embedding_->word_embeddings()
                                                                                  : nullptr;
}

Tensor TransformerStage::save_input(nn::Pass& pass, const Tensor& hidden_TH) {
  if (!distribute_saved_) return nn::stashed(hidden_TH);
  // A copy of this rank's part, so that the whole can go.
  const std::int64_t rank = setup_.tp.rank(), size = setup_.tp.size(), all = hidden_TH.numel();
  const Tensor part = hidden_TH.flat().slice(0, all * rank / size, all * (rank + 1) / size);
  Tensor saved = pass.exec.empty(part.shape(), part.dtype(), MemoryKind::stash);
  kernels::copy(pass.exec, part, saved);
  return saved;
}

Tensor TransformerStage::restore_input(nn::Pass& pass, Tensor saved) {
  if (!distribute_saved_) return saved;
  const std::int64_t size = setup_.tp.size();
  const Shape shape{pass.batch.shard_end - pass.batch.shard_begin, hidden_size_};
  std::vector<std::int64_t> parts;
  for (std::int64_t r = 0; r < size; ++r) parts.push_back(shape.numel() * (r + 1) / size - shape.numel() * r / size);
  Tensor whole = pass.exec.empty({shape.numel()}, saved.dtype());
  return setup_.tp.communicator()
      ->all_gather(std::move(saved), parts, std::move(whole), "input of recomputed layers")
      .wait()
      .reshape(shape);
}

nn::ParameterUnit TransformerStage::unit_after(std::int64_t layer) {
  if (layer + 1 < layout_.num_layers) return block_units_[static_cast<std::size_t>(layer + 1)];
  return head_unit_;
}

nn::ParameterUnit TransformerStage::unit_before(std::int64_t layer) {
  if (layer > 0) return block_units_[static_cast<std::size_t>(layer - 1)];
  return embedding_unit_;
}

Tensor TransformerStage::forward_layers(nn::Pass& pass, Tensor hidden, std::int64_t first, std::int64_t end,
                                        std::vector<TransformerBlock::Stash>& stashes) {
  for (std::int64_t i = first; i < end; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const nn::ParameterUse use(pass.parameter_gate, block_units_[at], unit_after(i));
    TransformerBlock::Stash unused;
    hidden = blocks_[at]->forward(pass, hidden, pass.keep_stash ? stashes[at] : unused);
    observe(pass, layout_.first_layer + i + 1, hidden);
  }
  return hidden;
}

Tensor TransformerStage::backward_layers(nn::Pass& pass, Tensor d_hidden, std::int64_t first, std::int64_t end,
                                         std::vector<TransformerBlock::Stash>& stashes) {
  for (std::int64_t i = end; i-- > first;) {
    const auto at = static_cast<std::size_t>(i);
    const nn::ParameterUse use(pass.parameter_gate, block_units_[at], unit_before(i));
    d_hidden = blocks_[at]->backward(pass, std::move(d_hidden), std::move(stashes[at]));
  }
  return d_hidden;
}

Tensor TransformerStage::forward_body(nn::Pass& pass, const Tensor& input, StageStash::Contents& stash) {
  Tensor hidden = input;
  if (layout_.first) {
    const nn::ParameterUse use(pass.parameter_gate, embedding_unit_, unit_after(-1));
    hidden = embedding_->forward(pass);
  }
  MEGATRON_CHECK_EQ(hidden.size(0), pass.batch.shard_end - pass.batch.shard_begin, "rows of the stage's input");
  if (layout_.first) observe(pass, 0, hidden);
  stash.blocks.resize(pass.keep_stash ? blocks_.size() : 0);
  std::int64_t done = 0;
  if (pass.keep_stash) {
    nn::Pass quiet = nn::with_stash(pass, false);
    for (const spec::RecomputeGroup& group : groups_) {
      stash.group_inputs.push_back(save_input(pass, hidden));
      done = group.first + group.count;
      hidden = forward_layers(quiet, std::move(hidden), group.first, done, stash.blocks);
    }
  }
  return forward_layers(pass, std::move(hidden), done, layout_.num_layers, stash.blocks);
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
    const nn::ParameterUse use(pass.parameter_gate, head_unit_, unit_before(layout_.num_layers));
    d_hidden = head_->backward(pass, std::move(contents.head));
    d_hidden = final_layernorm_->backward(pass, std::move(d_hidden), std::move(contents.final_layernorm));
  }
  const std::int64_t recomputed = groups_.empty() ? 0 : groups_.back().first + groups_.back().count;
  d_hidden = backward_layers(pass, std::move(d_hidden), recomputed, layout_.num_layers, contents.blocks);
  for (std::size_t g = groups_.size(); g-- > 0;) {
    const std::int64_t first = groups_[g].first, end = first + groups_[g].count;
    // The group's values stay for its backward pass, so that recompute gathers none a second time.
    std::deque<nn::ParameterUse> held;
    for (std::int64_t i = first; i < end; ++i)
      held.emplace_back(pass.parameter_gate, block_units_[static_cast<std::size_t>(i)],
                        i + 1 < end ? unit_after(i) : nn::ParameterUnit());
    {
      const nn::RecomputeScope scope(pass.exec);
      nn::Pass again = nn::with_stash(pass, true);
      again.observe_hidden = nullptr;
      again.parameter_gate = nullptr;
      forward_layers(again, restore_input(pass, std::move(contents.group_inputs[g])), first, end, contents.blocks);
    }
    d_hidden = backward_layers(pass, std::move(d_hidden), first, end, contents.blocks);
  }
  stash.contents.reset();
  if (!layout_.first) return d_hidden;
  const nn::ParameterUse use(pass.parameter_gate, embedding_unit_);
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
