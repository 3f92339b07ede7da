// The global batch of every step as a function of the samples trained before it: constant, ramped up (Megatron Core
// 0.16.1's --rampup-batch-size) or in steps (--step-batch-size-schedule), and the trajectory of a run that follows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/run_spec.h"

namespace megatron::spec {

/// The batch of one step.
struct StepBatch {
  std::int64_t nominal = 0;            // what the schedule asks for
  std::int64_t global_batch = 0;       // samples trained: `nominal` rounded down to whole micro-batches of all ranks
  std::int64_t num_micro_batches = 0;  // per data-parallel rank
  bool operator==(const StepBatch&) const = default;
};

/// Steps in a row with the same batch.
struct BatchStretch {
  std::int64_t first_iteration = 0;  // steps before it
  std::int64_t first_sample = 0;     // samples before it
  StepBatch batch;
};

class BatchSchedule {
 public:
  /// Reads global_batch_size, samples_per_round, rampup and batch_steps. Without samples_per_round batches are taken as
  /// they are, and the number of micro-batches is the one given.
  explicit BatchSchedule(const BatchSpec& batch);

  bool is_constant() const { return !rampup_ && steps_.empty(); }
  /// The batch of the step that follows `consumed` samples.
  ///
  /// Ramp-up: start + ⌊consumed ÷ (samples ÷ increments)⌋ · increment up to `samples`, then the target (quotients in
  /// double, as Megatron has them). Steps: the last entry whose threshold has been reached.
  StepBatch at(std::int64_t consumed) const;

  /// Samples that the first `iterations` steps train. Throws ConfigError where a step trains none.
  std::int64_t samples_after(std::int64_t iterations) const;
  /// Whole steps within `samples`; a last part of a step is left out.
  std::int64_t iterations_within(std::int64_t samples) const;
  /// The stretches of the first `iterations` steps; unset: until the batch changes no more. A step that trains nothing
  /// ends the list.
  std::vector<BatchStretch> trajectory(std::optional<std::int64_t> iterations) const;
  /// The largest batch of the first `iterations` steps, or of the first one; unset: of all that ever come. Where the
  /// first one trains nothing, so that no other ever comes: of all.
  StepBatch largest(std::optional<std::int64_t> iterations) const;

 private:
  std::int64_t nominal(std::int64_t consumed) const;
  StepBatch batch_of(std::int64_t nominal) const;
  /// The smallest count above `consumed` at which the nominal batch is another one; INT64_MAX: none.
  std::int64_t next_change(std::int64_t consumed) const;
  /// Calls visit(stretch, steps of it) until it returns false, or with INT64_MAX steps for the last stretch.
  template <typename Visit>
  void walk(Visit&& visit) const;

  std::int64_t global_batch_ = 0, samples_per_round_ = 0, num_micro_batches_ = 0;
  std::optional<BatchRampup> rampup_;
  std::vector<BatchStep> steps_;
};

/// "0:768 250B:1536" → steps in ascending order. Thresholds in tokens (K = 10³ to T = 10¹², fractions allowed, the
/// result truncated) become samples by division by `seq_length`; 0: they are samples. Commas between entries are
/// allowed. Throws ConfigError with the rule: TOKENS:BATCH, the first at 0, strictly increasing, batches above 0.
std::vector<BatchStep> parse_batch_steps(std::string_view text, std::int64_t seq_length);
/// Throws ConfigError: start, increment, samples at least 1, the start below the target, the increments whole.
void check(const BatchRampup& rampup);

/// Iterations of the run: --train-iters, or the whole steps within --train-samples. Nothing without either.
std::optional<std::int64_t> train_iterations(const BatchSpec& batch);
/// False where the run only evaluates: --skip-train, or a length without a step.
bool trains(const BatchSpec& batch);

}  // namespace megatron::spec
