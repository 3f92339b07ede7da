// Small helpers on text that several folders need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Without blanks, tabs and line ends at both ends.
std::string_view trim(std::string_view text);
/// The words with `separator` between them.
std::string joined(const std::vector<std::string>& words, std::string_view separator);
/// "1 stage", "2 stages", "2 batches".
std::string counted(std::int64_t count, std::string_view noun);
/// Takes the first line off `text` and returns it without its end, LF or CR LF; the last line need not have one.
std::string_view take_line(std::string_view& text);
/// Levenshtein distance: insertions, deletions and replacements of single bytes that lead from one to the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace megatron
