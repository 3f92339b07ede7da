// What a stage keeps of one micro-batch, part by part. The embedding keeps nothing: it is a function of the batch.
#pragma once

#include <vector>

#include "model/stage.h"
#include "model/transformer_block.h"
#include "nn/language_model_head.h"

namespace megatron::model {

struct StageStash::Contents {
  std::vector<TransformerBlock::Stash> blocks;  // empty ones where a layer is recomputed as a whole
  std::vector<Tensor> group_inputs;             // of each group of recomputed layers; a flat part if distributed
  bool has_head = false;
  nn::Norm::Stash final_layernorm;
  nn::LanguageModelHead::Stash head;
};

}  // namespace megatron::model
