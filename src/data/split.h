// `--split`: which part of a file is for training, validation and testing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace megatron::data {

enum class SplitName : std::uint8_t { train = 0, valid = 1, test = 2 };
constexpr std::array<std::string_view, 3> kSplitNames = {"train", "valid", "test"};

/// A share of [0, 1].
struct SplitShare {
  double begin = 0.0, end = 1.0;
};
/// Per split; unset: the split has no share.
using SplitMatrix = std::array<std::optional<SplitShare>, 3>;

struct IndexRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Up to three non-negative plain numbers, separated by commas (or slashes, or blanks), which are normalised to sum 1;
/// missing ones are 0. Anything else is a ConfigError naming the field (Megatron-LM ignores signs and letters).
SplitMatrix parse_split(std::string_view text);

/// The sequences [round(begin·n), round(end·n)) of n that a share takes, rounding halves to even.
IndexRange split_range(const SplitShare& share, std::int64_t num_sequences);

}  // namespace megatron::data
