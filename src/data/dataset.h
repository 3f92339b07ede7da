// Numbered training samples: the interface of every data set. A data set is immutable once built and is shared by all
// rank threads of a process; `get` is a pure function of the index and may be called from any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron::data {

/// Legend: S = sequence length. One sample: S input tokens and, for each, the token that follows.
struct Sample {
  std::vector<std::int64_t> tokens;        // [S]
  std::vector<std::int64_t> labels;        // [S]
  std::vector<float> loss_mask;            // [S] weight of each token's loss
  std::vector<std::int64_t> position_ids;  // [S]
  /// Rows that see each other: 0, start of each further sequence, S. {0, S} unless attention is reset at document ends.
  std::vector<std::int64_t> sequence_starts;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  /// Sample `index` in [0, size). Throws Error outside.
  virtual Sample get(std::int64_t index) const = 0;
  /// What fills an incomplete batch: sample 0 with a loss mask of zeros.
  Sample filler() const;
};

}  // namespace megatron::data
