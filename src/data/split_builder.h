// Builds the data set of one split from a blend: Megatron-LM's BlendedMegatronDatasetBuilder for one split.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/blended_dataset.h"
#include "data/gpt_dataset.h"
#include "data/index_cache.h"
#include "data/split.h"

namespace megatron::data {

/// The source behind a prefix; called once per prefix and split.
using OpenSource = std::function<std::shared_ptr<const SequenceSource>(const std::string& prefix)>;

struct SplitRequest {
  SplitName name = SplitName::train;
  Blend blend;
  SplitShare share;                         // of every file
  std::optional<std::int64_t> num_samples;  // unset: everything once
  double surplus = 0.005;
  GptDatasetConfig config;  // its num_samples is set here
  IndexCache cache;
  int num_threads = 1;  // for the members' indices, which do not depend on it
};

struct SplitMember {
  std::string prefix;
  IndexRange range;
  std::optional<std::int64_t> num_samples;  // asked of it
  std::shared_ptr<const GptDataset> dataset;
  std::int64_t drawn = 0;   // samples that the split takes from it
  std::string description;  // for the names of its files in the cache; empty without one
  std::string note;         // of the index cache; usually empty
};

struct BuiltSplit {
  std::shared_ptr<const Dataset> dataset;
  std::vector<SplitMember> members;
  std::vector<double> weights;        // normalised; empty for a single unweighted prefix
  const BlendIndex* blend = nullptr;  // owned by `dataset`; null for a single unweighted prefix
  std::string note;                   // of the blend's cache; usually empty
};

/// One unweighted prefix: its own samples. Weighted: Σ ceil(n·w) samples in the proportions of the weights. Unweighted:
/// every member once, in proportion to its samples, cut at n. Throws ConfigError naming prefix and split.
BuiltSplit build_split(const SplitRequest& request, const OpenSource& open);

}  // namespace megatron::data
