// Makes the instruction lists of a step for every rank of a pipeline: which passes of which virtual stage, in which
// order. Legend: p ranks, m micro-batches, v virtual stages per rank, F, I, W the times of a rank's forward, input
// gradient and weight gradient of one micro-batch (B = I + W). A stage's backward passes come in the order of the
// micro-batches in all schedules, so gradients are added in one order and every schedule gives the same bits. Nothing
// here has communication yet (passes.h). Any m ≥ 1 works, also m < p, but for `interleaved`.
#pragma once

#include <cstdint>
#include <string>

#include "schedule/instruction.h"

namespace megatron::schedule {

/// One forward, one backward (PipeDream-flush, arXiv 2104.04473 §2.2): rank r warms up with min(m, p − r − 1) forward
/// passes, then alternates; at most p − r stashes live on rank r. One stage per rank.
Program one_f_one_b(int num_ranks, std::int64_t num_micro_batches);

/// GPipe (arXiv 1811.06965): all forward passes, then all backward passes; m·v stashes live on every rank.
Program gpipe(const spec::StagePlacement& placement, std::int64_t num_micro_batches);

/// Interleaved 1F1B (arXiv 2104.04473 §2.2) in Megatron-LM's order: micro-batches pass a rank's stages in groups of
/// `group_size` = N; rank r warms up with min(m·v, 2(p − r − 1) + (v − 1)N) forward passes. At most one stash more
/// lives, each of 1/v of the rank. Linear placement.
Program interleaved(int num_ranks, int num_chunks, std::int64_t num_micro_batches, std::int64_t group_size);
/// Why Megatron-LM refuses these numbers for `interleaved`; empty if it does not: p ≤ N ≤ m, and a last group of at
/// least p micro-batches.
std::string interleaving_problem(int num_ranks, std::int64_t num_micro_batches, std::int64_t group_size);

/// ZB-H1 (arXiv 2401.10241 §2.1): 1F1B with W put off by r micro-batches on rank r, so that no rank holds more than
/// min(m, p) stashes. Idle time of each rank's span with m ≥ 2p − 1 and free messages: (p − 1)(F + I − W) where W ≤ F,
/// else (p − 1)·I.
Program zb_h1(int num_ranks, std::int64_t num_micro_batches);
/// ZB-H2 (§2.2): warms up with 2(p − r) − 1 forward passes and puts W off by 2r micro-batches; min(m, 2p − 1) stashes;
/// idle (p − 1)·max(0, F + I − 2W, I − F).
Program zb_h2(int num_ranks, std::int64_t num_micro_batches);
/// ZB-V (arXiv 2401.10241 §6, 2405.15362): two stages per rank in V placement, min(2m, 2p) stashes of half a rank. No
/// idle time where F = I = W and m ≥ 2p − 1: a step takes m(F + I + W) + (p − 1)F/2.
Program zb_v(int num_ranks, std::int64_t num_micro_batches);

/// Forward passes alone: evaluation and inference. With v > 1 micro-batches pass the stages in groups of p.
Program forward_only(const spec::StagePlacement& placement, std::int64_t num_micro_batches);

}  // namespace megatron::schedule
