// What is done with instruction lists between generator and engine: communication, checks, counts.
#pragma once

#include <cstdint>
#include <span>

#include "schedule/instruction.h"

namespace megatron::schedule {

bool is_compute(Op op);
bool is_send(Op op);
bool is_receive(Op op);

/// Puts a receive before each pass that needs a neighbour's tensor and a send after each that makes one:
/// rf F sf, rb B sb (rb I sb). The first stage has no rf and sb, the last no sf and rb. `compute` has no communication
/// and one chunk per stage.
Program insert_communication(const Program& compute);

/// Throws Error with one line (stage, instruction, rule) unless `program` can run to its end and is complete:
///  - every stage does each micro-batch 0 … m − 1 exactly once: one F, and in training one B (or one I, then one W)
///  after it;
///  - each pass has exactly the receives and sends it needs, in the order of insert_communication;
///  - sends and receives pair up first in, first out in each direction;
///  - nothing deadlocks, even if each send waits for its receive. Communication between two passes counts as posted
///    together, as a fused send-and-receive call would.
void validate(const Program& program);

/// The largest number of micro-batches whose stash is alive at one time on a stage with this list: from F to B (or W).
/// 0 for a list without backward.
std::int64_t max_live_stashes(std::span<const Instruction> instructions);

}  // namespace megatron::schedule
