// Short forms of instruction lists for tests.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "schedule/instruction.h"

namespace megatron::schedule {

/// "0F0 0sf0" → the list.
inline std::vector<Instruction> list_of(const std::string& text) {
  std::vector<Instruction> list;
  std::istringstream in(text);
  for (std::string word; in >> word;) list.push_back(parse_instruction(word));
  return list;
}

inline std::string text_of(const std::vector<Instruction>& list) {
  std::string text;
  for (const Instruction& instruction : list) text += (text.empty() ? "" : " ") + to_text(instruction);
  return text;
}

/// One text per rank; one stage per rank unless a placement is given.
inline Program program_of(const std::vector<std::string>& ranks) {
  Program program{{static_cast<int>(ranks.size())}, {}};
  for (const std::string& rank : ranks) program.lists.push_back(list_of(rank));
  return program;
}
inline Program program_of(const spec::StagePlacement& placement, const std::vector<std::string>& ranks) {
  Program program = program_of(ranks);
  program.placement = placement;
  return program;
}

}  // namespace megatron::schedule
