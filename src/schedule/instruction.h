// What one rank does for one step, as data. No generator splits B into I and W; passes and engine can do it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

struct Instruction {
  Op op;
  std::int64_t micro_batch = 0;
  int chunk = 0;
  bool operator==(const Instruction&) const = default;
};

/// "2F0": micro-batch 2, forward, chunk 0; sends and receives likewise: "2sf0".
std::string to_text(const Instruction& instruction);
/// The inverse; throws Error naming the text.
Instruction parse_instruction(const std::string& text);

/// The instruction lists of all stages: program[stage][i].
using Program = std::vector<std::vector<Instruction>>;

}  // namespace megatron::schedule
