// The training loop: data → engine → gradients → one summary of all ranks → optimizer → log → evaluation → checkpoint →
// reasons to end. Every decision is taken from numbers that all ranks share, so all ranks do the same at the same step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "train/assemble.h"
#include "train/listener.h"

namespace megatron::train {

enum class EndReason : std::uint8_t { finished, signal, exit_interval, exit_duration, not_finite };

struct TrainOutcome {
  EndReason reason = EndReason::finished;
  std::int64_t iteration = 0;  // steps done, those of earlier runs included
  std::int64_t consumed_samples = 0;
  int signal = 0;
  std::string saved_directory;  // of the checkpoint that holds `iteration`; empty: not saved
  /// With EndReason::not_finite: iteration, tensor, rank, micro-batch in one line.
  std::string error;
};

/// Called on every rank's thread: for tests, benchmarks and the peak memory that `train` prints at its end.
struct TrainHooks {
  std::function<void(RankParts&)> after_setup;  // weights initialised or loaded
  std::function<void(RankParts&, const StepReport&)> after_step;
  std::function<void(RankParts&)> at_end;
};

/// Trains (or only evaluates, with --skip-train) as process.run says. `listener` may be null. Throws what a rank threw;
/// ends by a signal, a limit or a NaN are no exceptions but outcomes.
TrainOutcome run_training(comm::World& world, const Process& process, RunListener* listener,
                          const TrainHooks& hooks = {});

/// Iterations of the whole run: --train-iters, or the whole steps within --train-samples. Throws ConfigError without
/// both.
std::int64_t total_iterations(const spec::RunSpec& run);

}  // namespace megatron::train
