// How long the documents of a data set are, counted by powers of two.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace megatron::data {

struct LengthHistogram {
  std::int64_t count = 0, tokens = 0, shortest = 0, longest = 0;
  /// [0] empty ones; [b] lengths in [2^(b − 1), 2^b).
  std::array<std::int64_t, 65> buckets{};

  void add(std::int64_t length) {
    shortest = count == 0 ? length : std::min(shortest, length);
    longest = std::max(longest, length);
    ++count;
    tokens += length;
    ++buckets[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)))];
  }
  /// "1 to 930 tokens, mean 214.3; <64 5%, <128 31%, …": shares of documents below a length.
  std::string text() const;
};

}  // namespace megatron::data
