// state.json of a checkpoint: where a run stands and how it was described. No tensors, no layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron::checkpoint {

/// What the learning-rate and weight-decay schedules were built from; compared on resume.
struct ScheduleState {
  double max_lr = 0, min_lr = 0, lr_warmup_init = 0;
  std::string lr_decay_style = "linear";
  std::string lr_wsd_decay_style = "exponential";
  double lr_warmup_samples = 0;  // a fraction of the decay need not be a whole number
  std::int64_t lr_decay_samples = 0, lr_wsd_decay_samples = 0;
  double start_weight_decay = 0, end_weight_decay = 0;
  std::string weight_decay_incr_style = "constant";
  std::int64_t weight_decay_incr_samples = 0;
  bool operator==(const ScheduleState&) const = default;
};

/// Of float16 training (train/loss_scaler.h).
struct LossScalerState {
  double scale = 1.0;
  std::int64_t growth_tracker = 0;  // steps since the last overflow or growth
  double hysteresis_tracker = 0;    // overflows left before the scale falls; may be negative
  bool operator==(const LossScalerState&) const = default;
};

struct RunState {
  std::int64_t iteration = 0;         // steps done, skipped ones included
  std::int64_t consumed_samples = 0;  // training samples taken, the position in the global sample order
  std::int64_t consumed_valid_samples = 0;
  std::int64_t trained_tokens = 0;      // tokens with mask ≠ 0
  std::int64_t skipped_iterations = 0;  // steps without an update
  std::int64_t num_updates = 0;         // updates of the optimizer: the step count of Adam's bias correction
  std::int64_t scheduler_samples = 0;   // where the schedules stand
  ScheduleState schedule;
  std::optional<LossScalerState> loss_scaler = {};
  /// JSON objects, kept as they are: the run's description (train/run_json.h) and the tokenizer's.
  std::string run_json = "{}";
  std::string tokenizer_json = "{}";
  bool operator==(const RunState&) const = default;
};

/// Throws Error if run_json or tokenizer_json is not a JSON object.
std::string run_state_to_json(const RunState& state);
/// Strict: missing, unknown or damaged fields are IoErrors naming `path` and field. The two embedded objects come back
/// in the form that run_state_to_json gives them (keys sorted, no blanks).
RunState run_state_from_json(const std::string& text, const std::string& path);

}  // namespace megatron::checkpoint
