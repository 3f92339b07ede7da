#include "train/stored_lr_schedule.h"

#include <string>

namespace megatron::train {

checkpoint::ScheduleState to_state(const schedule::LrSchedule& schedule) {
  checkpoint::ScheduleState state;
  state.max_lr = schedule.max_lr;
  state.min_lr = schedule.min_lr;
  state.lr_warmup_init = schedule.init_lr;
  state.lr_decay_style = std::string(schedule::style_name(schedule.style));
  state.lr_wsd_decay_style = std::string(schedule::style_name(schedule.wsd_style));
  state.lr_warmup_samples = schedule.warmup_samples;
  state.lr_decay_samples = schedule.decay_samples;
  state.lr_wsd_decay_samples = schedule.wsd_decay_samples;
  state.start_weight_decay = schedule.start_weight_decay;
  state.end_weight_decay = schedule.end_weight_decay;
  state.weight_decay_incr_style = std::string(schedule::style_name(schedule.weight_decay_style));
  state.weight_decay_incr_samples = schedule.weight_decay_samples;
  return state;
}

schedule::LrSchedule from_state(const checkpoint::ScheduleState& state) {
  schedule::LrSchedule schedule;
  schedule.max_lr = state.max_lr;
  schedule.min_lr = state.min_lr;
  schedule.init_lr = state.lr_warmup_init;
  schedule.style = schedule::parse_decay_style(state.lr_decay_style);
  schedule.wsd_style = schedule::parse_wsd_decay_style(state.lr_wsd_decay_style);
  schedule.warmup_samples = state.lr_warmup_samples;
  schedule.decay_samples = state.lr_decay_samples;
  schedule.wsd_decay_samples = state.lr_wsd_decay_samples;
  schedule.start_weight_decay = state.start_weight_decay;
  schedule.end_weight_decay = state.end_weight_decay;
  schedule.weight_decay_style = schedule::parse_weight_decay_style(state.weight_decay_incr_style);
  schedule.weight_decay_samples = state.weight_decay_incr_samples;
  return schedule;
}

schedule::LrSchedule without_idle_lengths(schedule::LrSchedule stored, const schedule::LrSchedule& own) {
  if (stored.style == spec::DecayStyle::constant && own.style == spec::DecayStyle::constant)
    stored.decay_samples = own.decay_samples;
  if (stored.weight_decay_style == spec::WeightDecayStyle::constant &&
      own.weight_decay_style == spec::WeightDecayStyle::constant)
    stored.weight_decay_samples = own.weight_decay_samples;
  return stored;
}

}  // namespace megatron::train
