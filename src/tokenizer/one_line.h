// Texts out of users' files in messages: one line, not too long.
#pragma once

#include <string>
#include <string_view>

namespace megatron::tokenizer {

/// Control characters as \xNN; what is longer than `most` bytes is cut, between characters, and ends with "...".
std::string one_line(std::string_view text, std::size_t most = 1000);

}  // namespace megatron::tokenizer
