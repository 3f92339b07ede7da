// Which keys a query sees; shared by the counters and all back ends.
#pragma once

#include <algorithm>

#include "kernels/attention.h"

namespace megatron::kernels {

/// Key rows [begin, end) of its sequence; empty if begin ≥ end.
struct KeyRange {
  std::int64_t begin, end;
};

/// Keys seen by query row `query` of a sequence with `keys` keys.
inline KeyRange visible_keys(const AttentionParams& params, std::int64_t query, std::int64_t keys) {
  const std::int64_t place = query + params.causal_offset;
  const std::int64_t end = params.causal ? std::min(keys, place + 1) : keys;
  const std::int64_t begin = params.window >= 0 ? std::max<std::int64_t>(0, place - params.window) : 0;
  return {std::min(begin, std::max<std::int64_t>(end, 0)), std::max<std::int64_t>(end, 0)};
}

/// Number of (query, key) pairs that are not masked, over all sequences, for one head.
inline std::int64_t visible_pairs(const AttentionParams& params, const SequenceRanges& sequences) {
  const auto key_starts = sequences.key_starts.empty() ? sequences.starts : sequences.key_starts;
  std::int64_t pairs = 0;
  for (std::size_t s = 0; s + 1 < sequences.starts.size(); ++s) {
    const std::int64_t queries = sequences.starts[s + 1] - sequences.starts[s];
    const std::int64_t keys = key_starts[s + 1] - key_starts[s];
    for (std::int64_t i = 0; i < queries; ++i) {
      const KeyRange range = visible_keys(params, i, keys);
      pairs += range.end - range.begin;
    }
  }
  return pairs;
}

}  // namespace megatron::kernels
