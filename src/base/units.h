// Bytes and times: constants and printing; rounding of whole numbers.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kGiB = 1024 * kMiB;

/// "1.50 GiB", "312 B"
std::string format_bytes(std::int64_t bytes);
/// "1:02:03" or "12.3 s"
std::string format_duration(double seconds);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

}  // namespace megatron
