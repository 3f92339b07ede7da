// Numbers that another program computed with a model: inputs and results in case.safetensors, tolerances and training
// settings in case.json beside it. Every result is optional; what is there is checked for its shape. Keys: tokens [b,
// s+1] (or input_ids and labels [b, s]), loss_mask [b, s], logits, token_losses, loss, hidden.N, grad.NAME, grad_norm,
// train_tokens [steps, b', s'+1], train.loss, train.grad_norm, final.NAME, final_unstable.NAME, generate.I.prompt,
// generate.I.tokens. NAME is the other program's name of the parameter.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace megatron::interop {

/// Largest errors of a correct float32 implementation; the defaults are those of a two-layer Llama of 100,672
/// parameters.
struct ReferenceTolerances {
  double logits_abs = 2e-5, hidden_abs = 1e-5, token_losses_abs = 1e-5, loss_abs = 8e-6;
  double grad_rel_to_tensor_max = 1e-5;  // largest error ÷ largest magnitude, per tensor
  double grad_norm_rel = 1e-5, train_loss_abs = 1e-5, train_grad_norm_rel = 3e-5;
  double final_rms = 2e-6;  // root mean square per tensor
  double final_abs = 1e-4;  // any single element
  /// Keys ("grad.NAME") of gradients that are exactly zero.
  std::set<std::string> zero_gradients;
};

/// AdamW at a constant rate; weight decay on tensors of two dimensions; clipping as max_norm / (norm + 1e-6).
struct ReferenceTraining {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip_grad = 1.0;
};

/// b sequences of s tokens with the token that follows each.
struct ReferenceBatch {
  std::int64_t samples = 0, seq_length = 0;
  std::vector<std::int64_t> ids, labels;  // [b·s]
  std::vector<float> loss_mask;           // [b·s]
};

struct GreedyCase {
  std::string name;  // "generate.0"
  std::vector<std::int64_t> prompt, tokens;
};

class ReferenceCase {
 public:
  /// Reads `path` and the case.json in its folder, if there is one. Throws IoError for damage or shapes that do not fit
  /// each other, ConfigError for training settings that are not offered.
  explicit ReferenceCase(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// Where tolerances and settings come from: path of the case.json, empty: there is none.
  const std::string& settings_path() const { return settings_path_; }
  const ReferenceTolerances& tolerances() const { return tolerances_; }
  const ReferenceTraining& training() const { return training_; }

  /// samples 0: the file has no input batch.
  const ReferenceBatch& batch() const { return batch_; }
  /// One batch per step, masks of ones; empty: none.
  const std::vector<ReferenceBatch>& train_batches() const { return train_batches_; }
  const std::vector<GreedyCase>& greedy() const { return greedy_; }
  bool has(const std::string& key) const { return file_.has(key); }
  /// Values of a tensor that must have `count` elements. Throws IoError naming key and both counts.
  std::vector<float> values(const std::string& key, std::int64_t count) const;
  /// Flat indices of final.NAME that rounding decides; each is below `count`.
  std::vector<std::int64_t> unstable(const std::string& name, std::int64_t count) const;
  /// Throws IoError naming the key of a token that is not below `vocab_size`.
  void check_tokens(std::int64_t vocab_size) const;

 private:
  void read_settings(const std::string& path);
  void read_batch();
  void read_train_batches();
  void read_greedy();
  [[noreturn]] void fail(const std::string& key, const std::string& reason) const;

  checkpoint::SafetensorsFile file_;
  std::string settings_path_;
  ReferenceTolerances tolerances_;
  ReferenceTraining training_;
  ReferenceBatch batch_;
  std::vector<ReferenceBatch> train_batches_;
  std::vector<GreedyCase> greedy_;
};

}  // namespace megatron::interop
