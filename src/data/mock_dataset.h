// `--mock-data`: Megatron-LM's made-up corpus of 100,000 sequences. Sequence i counts 1, 2, 3, … modulo the vocabulary
// and ends with the end-of-document id; its length is random but always the same.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sequence_source.h"

namespace megatron::data {

/// numpy.random.default_rng(0): the PCG64 generator of O'Neill (HMC-CS-2014-0905), seeded with SeedSequence(0).
class NumpyDefaultRng {
 public:
  NumpyDefaultRng();
  std::uint64_t next64();
  /// Low half of a fresh 64-bit word, then its high half.
  std::uint32_t next32();
  /// Uniform in [0, n) by Lemire's method (arXiv 1805.10941), 0 < n < 2³².
  std::uint32_t bounded(std::uint32_t n);

 private:
  void step();

  std::uint64_t state_high_ = 0, state_low_ = 0, increment_high_ = 0, increment_low_ = 0;
  bool has_half_ = false;
  std::uint32_t half_ = 0;
};

class MockSource final : public SequenceSource {
 public:
  MockSource(std::int64_t vocab_size, std::int64_t eod);
  std::int64_t num_sequences() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t length(std::int64_t index) const override;
  void read(std::int64_t index, std::int64_t offset, std::int64_t count, std::int64_t* out) const override;

 private:
  std::int64_t vocab_size_, eod_;
  std::vector<std::int32_t> lengths_;
};

}  // namespace megatron::data
