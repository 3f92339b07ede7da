// Searches the order of a step's passes for given times and a given memory: zero-bubble scheduling (arXiv 2401.10241
// §3) with one stage per rank, or with two in V placement for less memory than 1F1B (arXiv 2405.15362).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/instruction.h"
#include "spec/parallel_spec.h"

namespace megatron::schedule {

struct AutoRequest {
  spec::StagePlacement placement;  // linear with one stage per rank, or V
  std::int64_t num_micro_batches = 1;
  spec::PipelineTimes times = {};  // of a rank; each of its stages takes an equal share
  /// Stashes that a rank may hold, in multiples of 1F1B's on the first rank: p of a whole rank.
  double memory_limit = 1.0;
  /// What a stash weighs between its I and its W; above 1 where W needs what recompute brought back.
  double kept_after_input_grad = 1.0;
  /// F, I and W of each virtual stage instead of equal shares of `times`; empty: those.
  std::vector<spec::PipelineTimes> stage_times = {};
  /// Whole backward passes: each W follows its I.
  bool whole_backward = false;
};

/// The least limit that `auto_schedule` takes: that of 1F1B with one stage per rank; 2⌈(p − 1)/3⌉ + 2 stashes of half a
/// rank in V placement (V-Min of arXiv 2405.15362), less with few micro-batches.
double smallest_memory_limit(const spec::StagePlacement& placement, std::int64_t num_micro_batches);

/// A limit as text: four decimals at most, rounded up, so that what is named is enough.
std::string limit_text(double limit);

/// The best program found, without communication: F and I in an order made from few parameters, each W as late as
/// memory allows unless it fills a gap; the parameters with the shortest longest span win, the first on a tie.
/// Deterministic; the search is cut off for large pipelines. Throws ConfigError naming the smallest limit below it.
Program auto_schedule(const AutoRequest& request);

}  // namespace megatron::schedule
