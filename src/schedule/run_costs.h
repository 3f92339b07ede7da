// What a run costs its ranks before it runs: bytes in memory by kind and bytes on the wire, from the description and
// the program of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/instruction.h"
#include "spec/run_memory.h"
#include "spec/run_traffic.h"

namespace megatron::schedule {

struct RunCosts {
  std::vector<spec::RankMemory> memory;  // by global rank
  /// Of a step with the largest batch; each entry that of the rank with most.
  spec::TrafficTable step_traffic;
};

/// `run` must be complete, its layout must divide the model and its schedule hold its micro-batches (throws otherwise).
/// Memory is the largest of a training step and of an evaluation.
RunCosts run_costs(const spec::RunSpec& run);

/// What W needs of a micro-batch's stash, as a share of it: the largest of all stages' layers, embedding and head
/// apart. Above 1 where recompute keeps little from F to I. `run` as for run_costs.
double kept_after_input_grad(const spec::RunSpec& run);

/// The same where the run's schedule is searched (zb-auto); 1 for others, which weigh no stash by it.
double searched_stash_weight(const spec::RunSpec& run);

/// Largest bytes at one time of what goes through the passes of a rank with this list (communication included in it),
/// and of the messages: stashes and what waits for W, results that wait for their send or for a stage on the same
/// rank, messages that have come or have been posted ahead, and the passes themselves. `passes`: by chunk.
spec::StagePasses::Peak peak_of_passes(std::span<const Instruction> instructions, const spec::StagePlacement& placement,
                                       std::span<const spec::StagePasses> passes, std::int64_t message_bytes);

}  // namespace megatron::schedule
