// Nearest known names and nearest valid numbers, for error messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::config {

/// The name of `known` with the smallest edit distance; empty where none is near (distance above a third of its
/// length). Dashes and underscores count as equal.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);
/// "6, 12": the multiples of `step` around `value`, without zero.
std::string nearest_multiples(std::int64_t value, std::int64_t step);
/// "3, 4": the divisors of `whole` around `value`.
std::string nearest_divisors(std::int64_t value, std::int64_t whole);

}  // namespace megatron::config
