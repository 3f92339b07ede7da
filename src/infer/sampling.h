// From logits to the next token: greedy, temperature, top-k, top-p.
#pragma once

#include <cstdint>
#include <span>

namespace megatron::infer {

struct SamplingOptions {
  double temperature = 1.0;  // 0: greedy
  std::int64_t top_k = 0;    // 0: off; 1: greedy
  double top_p = 0.0;        // 0: off; not together with top_k
  std::uint64_t seed = 1234;
};

/// Throws ConfigError naming option, value and rule: temperature ≥ 0, top_k in 0 … vocab_size, top_p in [0, 1], not
/// both.
void check_sampling(const SamplingOptions& options, std::int64_t vocab_size);

/// The token at `position` (place in the sequence, from 0): argmax over the kept tokens of logit/temperature + Gumbel
/// noise, the noise being a function of (seed, position, token). So the same text comes out under every layout unless
/// two noisy logits tie within rounding. `logits` has vocab_size elements; padding never takes part. The order of
/// filters is Megatron-LM's: divide by temperature, then top-k or top-p (the smallest set of most likely tokens whose
/// sum exceeds top_p). Equal values: the lower id wins. Throws Error if a logit is NaN.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, std::int64_t position);

}  // namespace megatron::infer
