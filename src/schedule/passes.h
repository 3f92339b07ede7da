// What is done with instruction lists between generator and engine: communication, checks, counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/instruction.h"

namespace megatron::schedule {

/// Different micro-batches that some stage runs forward: that of the stage with most.
std::int64_t num_micro_batches(const Program& program);

/// Throws Error with one line (rank, instruction, rule) unless the passes of `program` are complete and in order;
/// messages are not looked at:
///  - each pass stands on the rank of its stage;
///  - every stage does each micro-batch 0 … m − 1 exactly once: one F, and in training one B (or one I, then one W)
///    after it, and on one rank after the passes it takes its tensor from;
///  - a stage runs B and I, and B and W, in ascending order of micro-batches: gradients are added in one order.
void validate_passes(const Program& program);

/// Each B as I and then W: the same work, with times and memory of its parts.
Program split_backward(Program program);

/// Adds a send after each pass whose tensor a stage on another rank needs (F sf, B sb, I sb), and receives before the
/// passes that need them. Between two ranks, messages are received in the order in which they are sent, over both
/// kinds and all stages; a receive therefore stands before the first pass that needs it or a later message of the same
/// sender, perhaps some passes before its own. A runner that executes its list in order with sends that never wait
/// neither mixes up messages nor deadlocks where the passes alone do not; receives may be posted ahead in list order
/// per sender. Stages on one rank exchange no message. `compute` has passes alone, as validate_passes wants them.
Program insert_communication(const Program& compute);

/// Throws Error with one line (rank, instruction, rule) unless `program`, communication included, can run to its end:
/// validate_passes; each pass has exactly the receives and sends it needs, receives before it and sends after it; the
/// messages from one rank to another pair up first in, first out; and nothing deadlocks if sends never wait.
void validate(const Program& program);

/// How many instructions from the front of each rank's list all ranks may run and then start again from the front:
/// forward passes with their messages, each of which is sent and received in these parts, but no forward pass of the
/// last stage, which may write gradients. `program` has communication.
std::vector<std::size_t> repeatable_front(const Program& program);

/// The largest number of stashes alive at one time on a rank with this list: from F to the end of B or W, each stage
/// and micro-batch one. 0 for a list without backward.
std::int64_t max_live_stashes(std::span<const Instruction> instructions);
/// Limits of memory are typed with a few digits: this much of a stash more than they say still fits.
inline constexpr double kStashSlack = 1e-3;

/// The same by weight: a stash weighs 1, between I and W `kept_after_input_grad`.
double max_stash_weight(std::span<const Instruction> instructions, double kept_after_input_grad);
/// Throws Error naming the first F of a rank whose stash does not fit into `limit` times 1F1B's: p stashes of a rank,
/// of which each of v stages holds a share of 1/v. `limit` ≤ 0: no limit.
void check_memory(const Program& program, double limit, double kept_after_input_grad);
/// The largest number of I whose W is still to come.
std::int64_t max_pending_weight_passes(std::span<const Instruction> instructions);

}  // namespace megatron::schedule
