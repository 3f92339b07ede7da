#include "train/loss_scaler.h"

#include <algorithm>

namespace megatron::train {

LossScaler::LossScaler(const spec::LossScaleSpec& spec) : spec_(spec) {
  state_.scale = spec.constant.value_or(spec.initial);
  state_.hysteresis_tracker = static_cast<double>(spec.hysteresis);
}

void LossScaler::update(bool overflow) {
  const bool at_bottom = spec_.constant.has_value() || state_.scale <= spec_.minimum;
  overflows_at_bottom_ = overflow && at_bottom ? overflows_at_bottom_ + 1 : 0;
  if (spec_.constant.has_value()) return;
  if (overflow) {
    state_.growth_tracker = 0;
    state_.hysteresis_tracker -= 1.0;
    if (state_.hysteresis_tracker <= 0.0) state_.scale = std::max(0.5 * state_.scale, spec_.minimum);
    return;
  }
  if (++state_.growth_tracker < spec_.window) return;
  state_.growth_tracker = 0;
  state_.hysteresis_tracker = static_cast<double>(spec_.hysteresis);
  state_.scale *= 2.0;
}

int seed_shift(std::int64_t tokens_per_rank_and_step) {
  int k = 0;
  while ((std::int64_t{1} << k) < tokens_per_rank_and_step) ++k;
  return k;
}

}  // namespace megatron::train
