// A numbered list of token sequences, the raw material of a data set: a file pair or made-up data.
#pragma once

#include <cstdint>

namespace megatron::data {

/// Immutable; any thread may read.
class SequenceSource {
 public:
  virtual ~SequenceSource() = default;
  virtual std::int64_t num_sequences() const = 0;
  /// Tokens of sequence `index`.
  virtual std::int64_t length(std::int64_t index) const = 0;
  /// Writes tokens [offset, offset + count) of sequence `index` to `out`. The range must lie inside the sequence.
  virtual void read(std::int64_t index, std::int64_t offset, std::int64_t count, std::int64_t* out) const = 0;
};

}  // namespace megatron::data
