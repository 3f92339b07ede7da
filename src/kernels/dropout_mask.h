// The dropout decision for one element, shared by all back ends.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/rng.h"

namespace megatron::kernels {

/// An element is dropped when its word's upper 24 bits lie below this: uniform_from_bits(word) < probability.
inline std::uint32_t dropout_threshold(double probability) {
  return static_cast<std::uint32_t>(std::ceil(probability * 0x1p24));
}

/// Counter of hidden dropout: features 4·quad … 4·quad + 3 of one row.
inline std::array<std::uint32_t, 4> hidden_dropout_counter(std::int64_t sample, std::int64_t position,
                                                           std::int64_t quad) {
  return {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32),
          static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(quad)};
}

/// Counter of attention dropout: keys 4·quad … 4·quad + 3 of one query and head.
inline std::array<std::uint32_t, 4> attention_dropout_counter(std::int64_t sample, std::int64_t head,
                                                              std::int64_t query, std::int64_t quad) {
  return {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(query),
          static_cast<std::uint32_t>(quad)};
}

inline bool dropout_keeps(const std::array<std::uint32_t, 4>& words, std::int64_t index, std::uint32_t threshold) {
  return (words[static_cast<std::size_t>(index % 4)] >> 8) >= threshold;
}

}  // namespace megatron::kernels
