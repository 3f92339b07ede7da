// What one rank does for one step, as data: passes of its virtual stages and the messages between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/stage_placement.h"

namespace megatron::schedule {

enum class Op : std::uint8_t {
  forward,           // F
  backward,          // B: input gradient and weight gradients
  backward_input,    // I
  backward_weight,   // W
  send_forward,      // sf: activation to the next stage
  receive_forward,   // rf
  send_backward,     // sb: gradient to the stage before
  receive_backward,  // rb
};

/// `stage` is a virtual stage, counted along the way of a micro-batch. Of a pass it is the stage that runs; of a send
/// the stage that made the tensor; of a receive the stage that will use it. So 2sf0 meets 3rf0, and 3sb0 meets 2rb0.
struct Instruction {
  Op op;
  std::int64_t micro_batch = 0;
  int stage = 0;
  bool operator==(const Instruction&) const = default;
};

bool is_compute(Op op);
bool is_send(Op op);
bool is_receive(Op op);
/// True for B and I, which take a gradient and give one.
bool is_input_backward(Op op);

/// The other end of a message: of 2sf0 it is 3rf0, of 2rb0 it is 3sb0. Its stage may lie outside the pipeline.
Instruction counterpart(const Instruction& message);

/// "2F0": stage 2, forward, micro-batch 0; sends and receives likewise: "2sf0".
std::string to_text(const Instruction& instruction);
/// The inverse; throws Error naming the text.
Instruction parse_instruction(const std::string& text);

/// The instruction lists of all ranks of a pipeline: lists[rank][i].
struct Program {
  spec::StagePlacement placement;
  std::vector<std::vector<Instruction>> lists;
  bool operator==(const Program&) const = default;
};

}  // namespace megatron::schedule
