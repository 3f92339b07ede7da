// What the passes of a stage hold in memory, moment by moment: the requests and releases of its layers, without layers
// and without tensors. The meta contract compares the peaks with those of the layers, as integers.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/block_shape.h"
#include "spec/memory_ledger.h"

namespace megatron::spec {

/// Of one micro-batch.
struct PassSetting {
  std::int64_t tokens = 0;
  ElementBytes bytes;
  bool hidden_dropout = false;
  bool weights_apart = false;  // the program has W passes
};

/// Weight-gradient work: done at once, or put off until W.
class PutOffWork {
 public:
  explicit PutOffWork(bool deferred) : deferred_(deferred) {}
  void push(Held x, Held dy);
  void drain() { kept_.clear(); }

 private:
  bool deferred_;
  std::vector<Held> kept_;
};

/// One stage's layers as holders of memory. Null handles are tensors that do not exist.
class StageMemory {
 public:
  struct LayerStash {
    Held input, statistics, qkv_input, qkv, head_statistics, queries, keys, log_sum_exp, proj_input;
    Held middle, middle_statistics, fc1_input, inner, fc2_input;
  };
  struct Stash {
    std::vector<LayerStash> layers;
    std::vector<Held> group_inputs;
    Held final_input, final_statistics, head_gradient;
    std::vector<Held> head_work;
  };

  /// The ledger is borrowed.
  StageMemory(const StageShape& shape, const PassSetting& setting, MemoryLedger& ledger)
      : shape_(shape), setting_(setting), ledger_(ledger), rows_(shape.block.layout.token_rows(setting.tokens)) {}

  /// The hidden state for the next stage, or the losses. `keep`: for backward (null stash: nothing is kept).
  Held forward(const Held& input, Stash* stash);
  /// The gradient of the stage's input; null on the first stage.
  Held backward(Held d_output, Stash stash, PutOffWork& work);

 private:
  Held values(std::int64_t elements) { return ledger_.take(setting_.bytes.value * elements); }
  Held stream() { return ledger_.take(setting_.bytes.stream * rows_ * width()); }
  Held statistics(std::int64_t count) { return ledger_.take(ElementBytes::kWide * count); }
  Held gathered(std::int64_t element_bytes) {
    return ledger_.take(element_bytes * setting_.tokens * width(), HeldKind::communication);
  }
  std::int64_t width() const { return shape_.block.norm.width; }
  bool sharded() const { return shape_.block.layout.sharded(); }
  bool plain_branch() const { return !setting_.hidden_dropout && setting_.bytes.value == setting_.bytes.stream; }

  Held embed();
  Held forward_layers(Held hidden, std::int64_t first, std::int64_t end, Stash* stash);
  Held forward_layer(const Held& x, LayerStash* stash);
  Held norm(const Held& x, Held* kept_x, Held* kept_statistics);
  Held add_residual(Held branch);
  Held attention(const Held& x, LayerStash* stash);
  Held mlp(const Held& x, LayerStash* stash);
  Held column_forward(const Held& x, std::int64_t out, Held* kept_x);
  Held row_forward(const Held& x, Held* kept_x);
  Held head_forward(const Held& normed, Stash* stash);

  Held backward_layers(Held d_hidden, std::int64_t first, std::int64_t end, Stash& stash, PutOffWork& work);
  Held backward_layer(Held dy, LayerStash& stash, PutOffWork& work);
  Held norm_backward(Held dy, Held& x, Held& row_statistics, PutOffWork& work);
  Held repeat_norm();
  Held branch_gradient(const Held& dy);
  Held attention_backward(Held dy, LayerStash& stash, PutOffWork& work);
  Held mlp_backward(Held dy, LayerStash& stash, PutOffWork& work);
  Held column_backward(Held dy, Held x, PutOffWork& work);
  Held row_backward(Held dy, Held x, const LinearShape& linear, PutOffWork& work);
  void repeat_group(const RecomputeGroup& group, Held saved, Stash& stash);
  void embed_backward(Held dy, PutOffWork& work);

  const StageShape& shape_;
  const PassSetting setting_;
  MemoryLedger& ledger_;
  std::int64_t rows_;
};

/// Bytes around the passes of one micro-batch on a stage.
struct StagePasses {
  struct Peak {
    std::int64_t activations = 0, communication = 0;
  };
  /// Highest within a pass, its input, the stash and the incoming gradient included.
  Peak forward, backward, input_backward;
  std::int64_t stash = 0;             // from forward to backward
  std::int64_t kept_for_weights = 0;  // from I to W
};

/// Where the stage's input and the gradient of its output come from: from another rank they are messages.
struct StageBorders {
  bool input_is_message = true, gradient_is_message = true;
};
StagePasses stage_passes(const StageShape& shape, const PassSetting& setting, const StageBorders& borders);
/// Peak of a forward pass that keeps nothing (evaluation).
StagePasses::Peak evaluation_peak(const StageShape& shape, const PassSetting& setting, const StageBorders& borders);

}  // namespace megatron::spec
