#include "spec/layer_split.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace megatron::spec {
namespace {

using Ranges = std::vector<std::vector<LayerRange>>;

bool accounts(const LayerSplit& s) { return s.account_for_embedding || s.account_for_loss; }

/// "3, 4": the divisors of `whole` around `value`.
std::string divisors_around(std::int64_t value, std::int64_t whole) {
  std::int64_t below = std::min(value - 1, whole), above = value + 1;
  while (below > 0 && whole % below != 0) --below;
  while (above <= whole && whole % above != 0) ++above;
  const bool has_above = above <= whole;
  if (below <= 0) return has_above ? str_cat(above) : std::string("1");
  return has_above ? str_cat(below, ", ", above) : str_cat(below);
}

std::string virtual_stages(int count) { return counted(count, "virtual stage"); }

/// Layers of each [rank][chunk] → ranges, numbered chunk by chunk, within a chunk rank by rank.
Ranges number_layers(const std::vector<std::vector<std::int64_t>>& counts) {
  Ranges ranges(counts.size());
  std::int64_t next = 0;
  for (std::size_t chunk = 0; chunk < counts.front().size(); ++chunk) {
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      ranges[rank].push_back({next, counts[rank][chunk]});
      next += counts[rank][chunk];
    }
  }
  return ranges;
}

/// Layers per rank with a given first and last rank; the rest evenly.
std::vector<std::int64_t> first_last_counts(const LayerSplit& s) {
  const int pp = s.pipeline_parallel;
  const std::int64_t first = s.first.value_or(0), last = s.last.value_or(0);
  const std::int64_t middle = s.num_layers - first - last;
  const int ranks = pp - (s.first ? 1 : 0) - (s.last ? 1 : 0);
  if ((s.first && first < 1) || (s.last && last < 1))
    throw ConfigError("a given first or last stage needs at least 1 layer");
  if (middle < 0)
    throw ConfigError(str_cat("first ", first, " and last ", last, " stage do not fit into ", s.num_layers, " layers"));
  if (ranks < 0) throw ConfigError(str_cat("a first and a last stage need at least 2 stages, not ", pp));
  if (ranks == 0 && middle != 0)
    throw ConfigError(str_cat("first ", first, " + last ", last, " stage hold ", first + last, " of ", s.num_layers,
                              " layers and no stage is left for the other ", middle));
  if (ranks > 0 && middle % ranks != 0)
    throw ConfigError(
        str_cat(middle, " layers between first and last stage do not divide over ", ranks,
                " stages; nearest: ", s.num_layers - middle % ranks, " layers in all, or ",
                s.first ? str_cat("first ", first + middle % ranks) : str_cat("last ", last + middle % ranks)));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(pp), ranks > 0 ? middle / ranks : 0);
  if (s.first) counts.front() = first;
  if (s.last) counts.back() = last;
  return counts;
}

Ranges split_first_last(const LayerSplit& s) {
  std::vector<std::vector<std::int64_t>> chunks;
  if (s.chunks > 1 && s.first && s.last && s.pipeline_parallel == 2)
    throw ConfigError("interleaving with a first and a last stage needs a stage between them");
  const std::vector<std::int64_t> counts = first_last_counts(s);
  const std::int64_t common = std::accumulate(counts.begin(), counts.end(), std::int64_t{0},
                                              [](std::int64_t a, std::int64_t b) { return std::gcd(a, b); });
  for (std::int64_t count : counts) {
    if (count % s.chunks != 0)
      throw ConfigError(str_cat(count, " layers of a stage do not divide into ", virtual_stages(s.chunks),
                                s.chunks_fixed ? "" : "; nearest: " + divisors_around(s.chunks, common)));
    chunks.emplace_back(static_cast<std::size_t>(s.chunks), count / s.chunks);
  }
  return number_layers(chunks);
}

/// Numbers of layers that would divide, where `total` counts the parts that count as layers.
std::string nearest_layers(const LayerSplit& s, std::int64_t total) {
  const std::int64_t step = std::int64_t{s.pipeline_parallel} * s.chunks;
  const std::int64_t below = total / step * step - (total - s.num_layers);
  return below > 0 ? str_cat("; nearest: ", below, " or ", below + step, " layers")
                   : str_cat("; nearest: ", below + step, " layers");
}

Ranges split_even(const LayerSplit& s) {
  const std::int64_t total = s.num_layers + (s.account_for_embedding ? 1 : 0) + (s.account_for_loss ? 1 : 0);
  const char* noun = accounts(s) ? " layers (embedding and loss counted as asked)" : " layers";
  if (total % s.pipeline_parallel != 0)
    throw ConfigError(
        str_cat(total, noun, " not divisible by pipeline size ", s.pipeline_parallel, nearest_layers(s, total)));
  const std::int64_t per_rank = total / s.pipeline_parallel;
  if (per_rank % s.chunks != 0) {
    const std::string other = divisors_around(s.chunks, per_rank);
    throw ConfigError(
        str_cat(s.num_layers, " layers over pipeline size ", s.pipeline_parallel, " = ", per_rank,
                " per rank, not divisible by ", virtual_stages(s.chunks), nearest_layers(s, total),
                s.chunks_fixed ? "" : str_cat(", or ", other, " virtual stage", other == "1" ? "" : "s")));
  }
  std::vector<std::vector<std::int64_t>> counts(
      static_cast<std::size_t>(s.pipeline_parallel),
      std::vector<std::int64_t>(static_cast<std::size_t>(s.chunks), per_rank / s.chunks));
  if (s.account_for_embedding) --counts.front().front();
  if (s.account_for_loss) --counts.back().back();
  if (counts.front().front() < 0 || counts.back().back() < 0)
    throw ConfigError(str_cat(s.num_layers, " layers are too few for pipeline size ", s.pipeline_parallel));
  return number_layers(counts);
}

Ranges split_automatically(const LayerSplit& s) {
  const auto pp = static_cast<std::size_t>(s.pipeline_parallel);
  const auto extra = static_cast<std::size_t>(s.num_layers % s.pipeline_parallel);
  std::vector<std::vector<std::int64_t>> counts(pp, {s.num_layers / s.pipeline_parallel});
  const std::size_t start = (pp - extra) / 2;
  for (std::size_t i = 0; i < extra; ++i) ++counts[start + i][0];
  return number_layers(counts);
}

void check_sizes(const LayerSplit& s) {
  if (s.pipeline_parallel < 1 || s.chunks < 1 || s.num_layers < 1)
    throw ConfigError(str_cat("cannot split ", s.num_layers, " layers over ", s.pipeline_parallel, " stages of ",
                              counted(s.chunks, "chunk")));
  if ((s.first || s.last) && accounts(s))
    throw ConfigError("a given first or last stage excludes counting embedding or loss as a layer");
}

}  // namespace

bool needs_automatic_split(const LayerSplit& s) {
  return s.chunks == 1 && !s.first && !s.last && !accounts(s) && s.num_layers % s.pipeline_parallel != 0;
}

Ranges split_layers(const LayerSplit& s) {
  check_sizes(s);
  if (s.first || s.last) return split_first_last(s);
  if (!needs_automatic_split(s)) return split_even(s);
  if (s.num_layers < s.pipeline_parallel)
    throw ConfigError(str_cat(s.num_layers, " layers not divisible by pipeline size ", s.pipeline_parallel,
                              ": each stage needs a layer"));
  return split_automatically(s);
}

std::vector<std::int64_t> layers_per_stage(const Ranges& ranges) {
  std::vector<std::int64_t> layers;
  for (std::size_t chunk = 0; chunk < ranges.front().size(); ++chunk)
    for (const auto& rank : ranges) layers.push_back(rank[chunk].count);
  return layers;
}

}  // namespace megatron::spec
