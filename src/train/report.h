// What a run tells: figures of a step and of an evaluation (listener.h: who hears them).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron::train {

/// One training step. Times in seconds: step and optimizer of this rank, the others means over the ranks.
struct StepReport {
  std::int64_t iteration = 0;         // from 1
  std::int64_t consumed_samples = 0;  // after the step
  std::int64_t global_batch = 0;      // samples of the step
  std::int64_t trained_tokens = 0;    // tokens whose mask is not 0
  std::int64_t computed_tokens = 0;   // all tokens of the global batch
  double token_sum = 0;               // Σ mask: what the loss was divided by
  double loss = 0;
  double grad_norm = 0;
  double loss_scale = 1;            // after this step: what the next one uses
  double lr = 0, weight_decay = 0;  // those of this update
  double step_seconds = 0, forward_seconds = 0, backward_seconds = 0, exposed_seconds = 0;
  double optimizer_seconds = 0, data_seconds = 0;
  bool skipped = false;  // no weight was changed
  bool nan = false;      // loss or gradient norm is not finite
  /// With --pipeline-post-validation: an update was taken back when the norm of all stages was known.
  std::optional<bool> redone;
  std::int64_t num_zeros = -1;
  double params_norm = -1;
};

/// Σ loss·mask ÷ Σ mask over the samples of one evaluation.
struct EvaluationReport {
  std::int64_t iteration = 0;
  std::string split;   // "validation", "test"
  std::string suffix;  // "", " on validation set", " on test set": as Megatron-LM ends its line
  std::string set;     // of several validation sets: which
  double loss = 0;
  double token_sum = 0;
  std::int64_t trained_tokens = 0;
  std::int64_t samples = 0;
  double seconds = 0;
};

}  // namespace megatron::train
