// Text → numbers and truth values, one meaning whatever file or command line the text stands in (Python's own forms).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace megatron::config {

/// "12", "-3", "220_000_000", "010" (ten).
std::optional<std::int64_t> parse_integer(std::string_view text);
/// "1e-4", ".5", "1.", "1_000.0"; infinities and NaN are refused: no option means one.
std::optional<double> parse_real(std::string_view text);
/// A number whatever its size: ±infinity where a double cannot hold it. Nothing where the text is no number.
std::optional<double> parse_magnitude(std::string_view text);
/// What is wrong with a text that must be a whole number from `least` to `most`; empty: nothing.
std::string integer_problem(std::string_view text, std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                            std::int64_t most = std::numeric_limits<std::int64_t>::max());
/// The same for parse_real.
std::string real_problem(std::string_view text);
/// true, false, yes, no, on, off in any case.
std::optional<bool> parse_truth(std::string_view text);
/// A line break or another control character: it would tear the one line of a message apart.
bool has_control_character(std::string_view text);
/// The shortest text that reads back as the same number: "0.1", "1e-05".
std::string format_real(double value);

}  // namespace megatron::config
