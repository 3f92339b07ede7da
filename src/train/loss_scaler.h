// The factor on the loss of float16 training (arXiv 1710.03740), constant or following overflows as Megatron-LM's does.
#pragma once

#include <cstdint>

#include "checkpoint/run_state.h"
#include "spec/run_spec.h"

namespace megatron::train {

/// Every rank has one and tells it the same, so they agree without communication.
class LossScaler {
 public:
  /// Overflows in a row, at a scale that cannot fall, that end a run.
  static constexpr int kMaxOverflows = 50;

  explicit LossScaler(const spec::LossScaleSpec& spec);

  double scale() const { return state_.scale; }
  /// After each step: whether a gradient was not finite, so that no weight was changed. The hysteresis-th overflow and
  /// each one after it halve the scale; `window` steps without one double it and forgive all overflows.
  void update(bool overflow);
  /// kMaxOverflows overflows came in a row at the constant or the minimum scale.
  bool exhausted() const { return overflows_at_bottom_ >= kMaxOverflows; }

  const checkpoint::LossScalerState& state() const { return state_; }
  void restore(const checkpoint::LossScalerState& state) { state_ = state; }

 private:
  spec::LossScaleSpec spec_;
  checkpoint::LossScalerState state_;
  int overflows_at_bottom_ = 0;
};

/// ⌈log2(tokens)⌉: gradients summed over that many tokens are seeded with 2^−k of the loss scale, so that a sum stays
/// in the range of a mean; the optimizer divides by it exactly.
int seed_shift(std::int64_t tokens_per_rank_and_step);

}  // namespace megatron::train
