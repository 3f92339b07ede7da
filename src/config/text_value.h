// Text → numbers and truth values, one meaning whatever file or command line the text stands in (Python's own forms).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megatron::config {

/// "12", "-3", "220_000_000", "010" (ten).
std::optional<std::int64_t> parse_integer(std::string_view text);
/// "1e-4", ".5", "1.", "1_000.0"; infinities and NaN are refused: no option means one.
std::optional<double> parse_real(std::string_view text);
/// true, false, yes, no, on, off in any case.
std::optional<bool> parse_truth(std::string_view text);
/// A line break or another control character: it would tear the one line of a message apart.
bool has_control_character(std::string_view text);
/// The shortest text that reads back as the same number: "0.1", "1e-05".
std::string format_real(double value);

}  // namespace megatron::config
