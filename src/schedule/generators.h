// Makes the instruction lists of a step for every rank of a pipeline: which passes of which virtual stage, in which
// order. Legend: p ranks, m micro-batches, v virtual stages per rank. A stage's backward passes come in the order of
// the micro-batches in all of them, so gradients are added in the same order and every schedule gives the same bits.
// None has communication yet (passes.h); any m ≥ 1 works, also m < p.
#pragma once

#include <cstdint>

#include "schedule/instruction.h"
#include "spec/parallel_spec.h"

namespace megatron::schedule {

/// One forward, one backward (PipeDream-flush, arXiv 2104.04473 §2.2): rank r warms up with min(m, p − r − 1) forward
/// passes, then alternates; at most p − r stashes live on rank r. One stage per rank.
Program one_f_one_b(int num_ranks, std::int64_t num_micro_batches);
/// GPipe (arXiv 1811.06965): all forward passes, then all backward passes; m·v stashes live on every rank.
Program gpipe(const spec::StagePlacement& placement, std::int64_t num_micro_batches);
/// Forward passes alone: evaluation and inference. With v > 1 micro-batches pass the stages in groups of p.
Program forward_only(const spec::StagePlacement& placement, std::int64_t num_micro_batches);

/// What one step of a run executes: the schedule it asks for (or forward passes alone), communication inserted.
Program training_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches);
Program evaluation_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches);

}  // namespace megatron::schedule
