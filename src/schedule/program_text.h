// Programs as text: one line per rank, comma-separated passes "<virtual stage><F|B|I|W><micro-batch>", as in
//   0F0,0F1,0B0,0B1
//   1F0,1B0,1F1,1B1
// Sends and receives are shown where a program has them; they are not read back, for insert_communication adds them.
#pragma once

#include <string>

#include "schedule/instruction.h"

namespace megatron::schedule {

/// Ends with a line feed.
std::string to_text(const Program& program);

/// The inverse for passes alone: spaces and empty lines are allowed. The placement follows from where the stages stand:
/// linear, or V with two per rank. Throws Error naming the line and the instruction for what is no program; what
/// validate_passes checks is left to it.
Program parse_program(const std::string& text);

/// parse_program of a file, checked by validate_passes; IoError if it cannot be read, ConfigError naming the file
/// otherwise.
Program read_program(const std::string& path);
/// The same, where the caller names the file: errors do not.
Program read_named_program(const std::string& path);

}  // namespace megatron::schedule
