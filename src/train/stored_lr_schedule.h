// The learning-rate schedule of a run in the form that a checkpoint keeps, and back.
#pragma once

#include "checkpoint/run_state.h"
#include "schedule/lr_schedule.h"

namespace megatron::train {

checkpoint::ScheduleState to_state(const schedule::LrSchedule& schedule);
/// Throws ConfigError for a style that is not known.
schedule::LrSchedule from_state(const checkpoint::ScheduleState& state);

/// `stored` with the lengths of `own` where both are constant: a length that changes no value is no difference.
schedule::LrSchedule without_idle_lengths(schedule::LrSchedule stored, const schedule::LrSchedule& own);

}  // namespace megatron::train
