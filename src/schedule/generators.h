// Makes the instruction lists of a step for every stage of a pipeline: which forward and backward passes, in which
// order. Legend: p stages, m micro-batches. Backward passes come in the order of the micro-batches in all of them, so
// gradients are added in the same order and every schedule gives the same bits.
#pragma once

#include <cstdint>

#include "schedule/instruction.h"
#include "spec/parallel_spec.h"

namespace megatron::schedule {

/// One forward, one backward (PipeDream-flush, arXiv 2104.04473 §2.2): stage s warms up with min(m, p − s − 1) forward
/// passes, then alternates; at most p − s stashes live on stage s. Any m ≥ 1, also m < p. No communication yet.
Program one_f_one_b(int num_stages, std::int64_t num_micro_batches);
/// GPipe (arXiv 1811.06965): all forward passes, then all backward passes; m stashes live on every stage.
Program gpipe(int num_stages, std::int64_t num_micro_batches);
/// Forward passes alone: evaluation and inference.
Program forward_only(int num_stages, std::int64_t num_micro_batches);

/// What one step of a run executes: the schedule it asks for (or forward passes alone), communication inserted.
Program training_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches);
Program evaluation_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches);

}  // namespace megatron::schedule
