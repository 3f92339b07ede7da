#include "infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace megatron::infer {
namespace {

/// −log(−log u) with u from the middle of 2³² equal parts of (0, 1).
double gumbel(std::uint32_t bits) { return -std::log(-std::log((static_cast<double>(bits) + 0.5) * 0x1p-32)); }

/// Ids in descending order of logit, the lower id first among equals; only the first `count` are in order.
std::vector<std::int64_t> best_ids(std::span<const float> logits, std::int64_t count) {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](std::int64_t a, std::int64_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  });
  return ids;
}

std::vector<std::int64_t> kept_ids(std::span<const float> logits, const SamplingOptions& options) {
  const auto size = static_cast<std::int64_t>(logits.size());
  if (options.top_k > 0) {
    std::vector<std::int64_t> ids = best_ids(logits, std::min(options.top_k, size));
    ids.resize(static_cast<std::size_t>(std::min(options.top_k, size)));
    return ids;
  }
  if (options.top_p <= 0.0 || options.top_p >= 1.0) {
    std::vector<std::int64_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), std::int64_t{0});
    return ids;
  }
  std::vector<std::int64_t> ids = best_ids(logits, size);
  const double top = logits[static_cast<std::size_t>(ids[0])];
  const auto weight = [&](std::int64_t id) {
    return std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - top) / options.temperature);
  };
  double total = 0.0, sum = 0.0;
  for (const std::int64_t id : ids) total += weight(id);
  std::size_t kept = 0;
  while (kept < ids.size() && sum <= options.top_p * total) sum += weight(ids[kept++]);
  ids.resize(kept);
  return ids;
}

}  // namespace

void check_sampling(const SamplingOptions& options, std::int64_t vocab_size) {
  if (!(options.temperature >= 0.0) || std::isinf(options.temperature))
    throw ConfigError(str_cat("--temperature ", options.temperature, ": must be finite and at least 0"));
  if (options.top_k < 0 || options.top_k > vocab_size)
    throw ConfigError(str_cat("--top-k ", options.top_k, ": must lie in 0 … ", vocab_size, " (the vocabulary)"));
  if (!(options.top_p >= 0.0 && options.top_p <= 1.0))
    throw ConfigError(str_cat("--top-p ", options.top_p, ": must lie in 0 … 1"));
  if (options.top_k > 0 && options.top_p > 0.0)
    throw ConfigError(str_cat("--top-k ", options.top_k, " together with --top-p ", options.top_p,
                              ": give one of them, the other 0"));
}

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, std::int64_t position) {
  for (std::size_t id = 0; id < logits.size(); ++id)
    if (std::isnan(logits[id]))
      throw Error(str_cat("the logit of token ", id, " at position ", position, " is not a number"));
  if (options.temperature == 0.0 || options.top_k == 1)
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  const PhiloxKey key = make_philox_key(options.seed, RandomPurpose::sampling, 0);
  std::int64_t best = -1;
  double best_score = -HUGE_VAL;
  for (const std::int64_t id : kept_ids(logits, options)) {
    const auto words =
        philox4x32(key, {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                         static_cast<std::uint32_t>(id / 4), 0});
    const double score = static_cast<double>(logits[static_cast<std::size_t>(id)]) / options.temperature +
                         gumbel(words[static_cast<std::size_t>(id % 4)]);
    if (score > best_score || (score == best_score && id < best)) {
      best = id;
      best_score = score;
    }
  }
  if (best < 0) throw Error(str_cat("every logit at position ", position, " is −inf"));
  return best;
}

}  // namespace megatron::infer
