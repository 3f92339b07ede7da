// Learning rate and weight decay as functions of the number of samples trained so far: Megatron's schedules, with its
// order of operations in double, so that the values are equal bit for bit.
#pragma once

#include <cstdint>
#include <string_view>

#include "spec/optimizer_spec.h"
#include "spec/run_spec.h"

namespace megatron::schedule {

/// All lengths in samples. The warm-up may be a fraction of the decay and so need not be a whole number.
struct LrSchedule {
  double init_lr = 0.0, max_lr = 0.0, min_lr = 0.0;
  double warmup_samples = 0.0;
  std::int64_t decay_samples = 0;
  spec::DecayStyle style = spec::DecayStyle::linear;
  std::int64_t wsd_decay_samples = 0;  // WSD only; may exceed decay_samples
  spec::WsdDecayStyle wsd_style = spec::WsdDecayStyle::exponential;
  double start_weight_decay = 0.0, end_weight_decay = 0.0;
  std::int64_t weight_decay_samples = 0;
  spec::WeightDecayStyle weight_decay_style = spec::WeightDecayStyle::constant;
  bool operator==(const LrSchedule&) const = default;

  /// For the update that follows `num_samples` trained samples: update k (from 0) uses k · global batch size.
  double lr(std::int64_t num_samples) const;
  double weight_decay(std::int64_t num_samples) const;
};

/// The schedule of a run whose batch and training length are derived. Lengths come from iterations where the run is
/// given in iterations, else from samples; the decay defaults to the whole training. Throws ConfigError naming the
/// option where the learning rate or the training length is missing, or a rule is broken (check).
LrSchedule make_lr_schedule(const spec::OptimizerSpec& optimizer, const spec::BatchSpec& batch);

/// Throws ConfigError naming option, value and rule: 0 ≤ min ≤ max, init ≤ max, decay > 0, warm-up < decay,
/// 0 ≤ start weight decay ≤ end (equal when constant), WSD has its decay length.
void check(const LrSchedule& schedule);

/// What a resumed run uses: `saved` is the schedule stored in the checkpoint, `own` the one of the options. Without
/// either flag both must agree, except in init_lr and the WSD part, which a checkpoint does not bind (Megatron's rule),
/// else ConfigError naming the quantity and both values; with override `own`, with use-checkpoint the stored values.
LrSchedule resume(const LrSchedule& own, const LrSchedule& saved, bool override_from_options, bool use_checkpoint);

/// Megatron's spellings: "inverse-square-root", "WSD", "minus_sqrt", "constant" …, and back (ConfigError for others).
std::string_view style_name(spec::DecayStyle style);
std::string_view style_name(spec::WsdDecayStyle style);
std::string_view style_name(spec::WeightDecayStyle style);
spec::DecayStyle parse_decay_style(std::string_view name);
spec::WsdDecayStyle parse_wsd_decay_style(std::string_view name);
spec::WeightDecayStyle parse_weight_decay_style(std::string_view name);

}  // namespace megatron::schedule
