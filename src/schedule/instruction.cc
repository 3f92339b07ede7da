#include "schedule/instruction.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace megatron::schedule {
namespace {

constexpr std::array<std::pair<Op, std::string_view>, 8> kNames = {{{Op::forward, "F"},
                                                                    {Op::backward, "B"},
                                                                    {Op::backward_input, "I"},
                                                                    {Op::backward_weight, "W"},
                                                                    {Op::send_forward, "sf"},
                                                                    {Op::receive_forward, "rf"},
                                                                    {Op::send_backward, "sb"},
                                                                    {Op::receive_backward, "rb"}}};

/// The digits at the start of `text`, which are cut off.
template <typename Int>
bool take_number(std::string_view& text, Int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.empty() || text.front() == '-') return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

bool is_compute(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::backward_input || op == Op::backward_weight;
}
bool is_send(Op op) { return op == Op::send_forward || op == Op::send_backward; }
bool is_receive(Op op) { return op == Op::receive_forward || op == Op::receive_backward; }
bool is_input_backward(Op op) { return op == Op::backward || op == Op::backward_input; }

Instruction counterpart(const Instruction& message) {
  const std::int64_t i = message.micro_batch;
  switch (message.op) {
    case Op::send_forward:
      return {Op::receive_forward, i, message.stage + 1};
    case Op::receive_forward:
      return {Op::send_forward, i, message.stage - 1};
    case Op::send_backward:
      return {Op::receive_backward, i, message.stage - 1};
    case Op::receive_backward:
      return {Op::send_backward, i, message.stage + 1};
    default:
      throw Error(str_cat(to_text(message), " is no message"));
  }
}

std::string to_text(const Instruction& instruction) {
  std::string_view name = "?";
  for (const auto& [op, text] : kNames)
    if (op == instruction.op) name = text;
  std::string text = std::to_string(instruction.stage);
  text += name;
  text += std::to_string(instruction.micro_batch);
  return text;
}

Instruction parse_instruction(const std::string& text) {
  Instruction result{Op::forward};
  std::string_view rest = text;
  bool good = take_number(rest, result.stage);
  const std::size_t letters = rest.find_first_of("0123456789");
  const std::string_view name = rest.substr(0, letters);
  bool known = false;
  for (const auto& [op, op_name] : kNames) {
    if (op_name != name) continue;
    result.op = op;
    known = true;
  }
  if (letters != std::string_view::npos) rest.remove_prefix(letters);
  good = good && known && letters != std::string_view::npos && take_number(rest, result.micro_batch) && rest.empty();
  if (!good)
    throw Error(str_cat("'", text, "' is not an instruction: virtual stage, one of F B I W sf rf sb rb, micro-batch, ",
                        "as in 2F0"));
  return result;
}

}  // namespace megatron::schedule
