// What a run says about itself before the first step.
#pragma once

#include <string>
#include <vector>

#include "train/assemble.h"

namespace megatron::train {

/// The mesh as the ranks have it, the layers and parameters of each stage, the totals. Collective over the world; the
/// same lines on every rank.
std::vector<std::string> describe_layout(RankParts& parts);

/// Compares what the ranks of this process are predicted to need with all that the machine has, before any of it is
/// asked for. Throws Error. Nothing is said of ranks that are processes, of which others may run elsewhere, and of runs
/// that do not train.
void check_memory(const spec::RunSpec& run);

/// Has the system give gradients and optimizer state their memory now: what does not fit fails before the first step.
void claim_memory(RankParts& parts);

/// Memory of rank 0 by kind, size of a checkpoint and free space where it will go. Collective over the world.
std::vector<std::string> describe_resources(RankParts& parts);

}  // namespace megatron::train
