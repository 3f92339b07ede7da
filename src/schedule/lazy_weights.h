// Completes a list of F and I with W: what all searched schedules have in common.
#pragma once

#include <optional>
#include <vector>

#include "schedule/instruction.h"
#include "spec/parallel_spec.h"

namespace megatron::schedule {

struct LazyWeights {
  std::vector<spec::PipelineTimes> times;  // of each virtual stage
  double message = 0.0;
  double capacity = 0.0;  // stashes of a stage that a rank may hold
  double kept = 1.0;      // what a stash weighs between I and W
  /// A W fills a gap that lasts at least this share of it.
  double fill = 1.0;
  /// Each W follows its I at once, as in a whole backward pass.
  bool at_once = false;
};

struct CompletedProgram {
  Program program;
  double longest_span = 0.0, makespan = 0.0;
};

/// `order`: F and I of every rank. Each W comes as late as possible: when the next F would exceed the capacity or an I
/// has (kept > 1), when it fits into the time until the next pass can start, or at the end. Nothing where even W at
/// once exceeds the capacity, or where the order deadlocks.
std::optional<CompletedProgram> complete_with_weights(const Program& order, const LazyWeights& rules);

}  // namespace megatron::schedule
