// The stage of a decoder-only Transformer: embedding, blocks, final norm, head, each where it belongs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/stage.h"
#include "model/transformer_block.h"
#include "nn/embedding.h"
#include "nn/language_model_head.h"

namespace megatron::model {

struct StageLayout {
  std::int64_t first_layer = 0, num_layers = 0;
  std::int64_t first_local_layer = 0;  // layers of the rank's chunks before
  bool first = true, last = true;
};

class TransformerStage final : public Stage {
 public:
  /// `decay_head_norms`: --apply-wd-to-qk-layernorm. `model` is complete. `table`: that of the first stage if a chunk
  /// of this rank before this one is that stage and the head is tied to it; else null.
  TransformerStage(const nn::LayerSetup& setup, const spec::ModelSpec& model, const StageLayout& layout,
                   bool decay_head_norms, const spec::RecomputeSpec& recompute, nn::Parameter* table);

  Tensor forward(nn::Pass& pass, const Tensor& input, StageStash& stash) override;
  Tensor backward(nn::Pass& pass, Tensor d_output, StageStash&& stash) override;
  Tensor forward_logits(nn::Pass& pass, const Tensor& input, std::int64_t row_begin, std::int64_t row_end) override;

  const std::vector<nn::Parameter*>& parameters() override { return parameters_; }

  /// The first stage's token table, if the head is tied to it; else null.
  nn::Parameter* shared_table();

 private:
  /// Embedding (or input) and blocks.
  Tensor forward_body(nn::Pass& pass, const Tensor& input, StageStash::Contents& stash);

  /// Layers [first, end) with a stash each or, in evaluation, without.
  Tensor forward_layers(nn::Pass& pass, Tensor hidden, std::int64_t first, std::int64_t end,
                        std::vector<TransformerBlock::Stash>& stashes);
  Tensor backward_layers(nn::Pass& pass, Tensor d_hidden, std::int64_t first, std::int64_t end,
                         std::vector<TransformerBlock::Stash>& stashes);
  /// What a forward pass uses after layer `layer` of this stage (−1: after the embedding), a backward pass after it.
  nn::ParameterUnit unit_after(std::int64_t layer);
  nn::ParameterUnit unit_before(std::int64_t layer);
  /// Keeps the input of a group of recomputed layers, and gives it back.
  Tensor save_input(nn::Pass& pass, const Tensor& hidden_TH);
  Tensor restore_input(nn::Pass& pass, Tensor saved);

  nn::LayerSetup setup_;
  StageLayout layout_;
  std::int64_t hidden_size_;
  bool distribute_saved_;
  std::vector<spec::RecomputeGroup> groups_;  // of layers that backward computes again
  std::optional<nn::Embedding> embedding_;
  std::vector<std::unique_ptr<TransformerBlock>> blocks_;
  std::optional<nn::Norm> final_layernorm_;
  std::optional<nn::LanguageModelHead> head_;
  std::vector<nn::Parameter*> parameters_;
  /// What is used together (nn::ParameterGate): the embedding, each layer, final norm and head.
  std::vector<nn::Parameter*> embedding_unit_, head_unit_;
  std::vector<std::vector<nn::Parameter*>> block_units_;
};

}  // namespace megatron::model
