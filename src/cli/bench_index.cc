// megatron bench index: the indices that turn documents into samples, of documents of random lengths.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "base/check.h"
#include "cli/bench.h"
#include "data/gpt_index.h"
#include "train/machine.h"

namespace megatron::cli {
namespace {

/// Lengths from 1 to twice the mean, `tokens` in all. Four bytes each, as an .idx file holds them.
std::vector<std::int32_t> random_lengths(std::int64_t tokens, std::int64_t mean) {
  std::mt19937_64 random(1234);
  std::vector<std::int32_t> lengths;
  lengths.reserve(static_cast<std::size_t>(tokens / mean + tokens / mean / 8 + 16));
  while (tokens > 0) {
    const auto drawn = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(2 * mean));
    lengths.push_back(static_cast<std::int32_t>(std::min(drawn, tokens)));
    tokens -= lengths.back();
  }
  return lengths;
}

std::int64_t bytes_of(const data::IndexArray& array) { return array.size() * (array.wide() ? 8 : 4); }

}  // namespace

int bench_index(Arguments args) {
  BenchNumbers numbers(
      args, {{"--tokens", 1'000'000'000}, {"--document-tokens", 1000}, {"--seq-length", 1024}, {"--epochs", 1}});
  const std::int64_t tokens = numbers.at("--tokens"), mean = numbers.at("--document-tokens");
  const std::int64_t length = numbers.at("--seq-length"), epochs = numbers.at("--epochs");
  if (mean >= (std::int64_t{1} << 30)) throw ConfigError(str_cat("--document-tokens ", mean, ": must be below 2^30"));
  if (tokens <= length) throw ConfigError(str_cat("--tokens ", tokens, ": must be more than --seq-length ", length));
  const std::vector<std::int32_t> lengths = random_lengths(tokens, mean);
  const auto documents = static_cast<std::int64_t>(lengths.size());
  data::GptIndexConfig config;
  config.seq_length = length;
  if (epochs > 1) config.num_samples = (epochs * tokens - 1) / length;
  const std::int64_t resident_before = train::peak_resident_bytes();
  const auto begin = std::chrono::steady_clock::now();
  const data::GptIndex index = data::build_gpt_index(
      config, {0, documents}, [&lengths](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::int64_t grown = train::peak_resident_bytes() - resident_before;
  print_bench(
      nlohmann::ordered_json{{"seconds", seconds},
                             {"tokens", tokens},
                             {"documents", documents},
                             {"epochs", index.plan.num_epochs},
                             {"samples", index.plan.num_samples},
                             {"index_bytes", bytes_of(index.documents) + bytes_of(index.sample_document) +
                                                 bytes_of(index.sample_offset) + bytes_of(index.order)},
                             {"peak_rss_growth_bytes", grown},
                             {"limit_bytes", 4 * documents * index.plan.num_epochs + 12 * index.plan.num_samples}},
      numbers.json());
  return 0;
}

}  // namespace megatron::cli
