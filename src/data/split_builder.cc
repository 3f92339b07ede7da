#include "data/split_builder.h"

#include "base/check.h"

namespace megatron::data {
namespace {

SplitMember build_member(const SplitRequest& request, const OpenSource& open, const std::string& prefix,
                         std::optional<std::int64_t> num_samples) {
  const auto source = open(prefix);
  SplitMember member{prefix, split_range(request.share, source->num_sequences()), num_samples, nullptr, 0};
  GptDatasetConfig config = request.config;
  config.index.num_samples = num_samples;
  try {
    member.dataset = std::make_shared<const GptDataset>(source, member.range, config);
  } catch (const ConfigError& error) {
    throw ConfigError(
        str_cat(prefix, ": the ", kSplitNames[static_cast<std::size_t>(request.name)], " split ", error.what()));
  }
  return member;
}

void check_request(const SplitRequest& request) {
  const auto& blend = request.blend;
  MEGATRON_CHECK(!blend.empty(), "no data path");
  if (blend.weights && blend.weights->size() != blend.prefixes.size())
    throw ConfigError(str_cat("a blend has ", blend.prefixes.size(), " paths but ", blend.weights->size(), " weights"));
  if (blend.weights && !request.num_samples)
    throw ConfigError(str_cat("the ", kSplitNames[static_cast<std::size_t>(request.name)],
                              " split is read whole: weights of its paths have no meaning; leave them out"));
}

/// Shares of an unweighted blend, by what its members hold.
std::vector<double> shares_by_size(const SplitRequest& request, const std::vector<SplitMember>& members) {
  std::vector<double> sizes;
  for (const SplitMember& member : members) {
    if (member.dataset->size() == 0)
      throw ConfigError(str_cat(member.prefix, ": the ", kSplitNames[static_cast<std::size_t>(request.name)],
                                " split yields no sample of length ", request.config.index.seq_length,
                                "; leave the file out of the blend"));
    sizes.push_back(static_cast<double>(member.dataset->size()));
  }
  return normalize_weights(sizes);
}

BlendIndex build_index(const SplitRequest& request, const std::vector<SplitMember>& members,
                       const std::vector<double>& weights) {
  if (!request.num_samples) {
    std::vector<std::int64_t> sizes;
    for (const SplitMember& member : members) sizes.push_back(member.dataset->size());
    return build_exhaustive_blend(sizes);
  }
  std::int64_t size = *request.num_samples;
  if (request.blend.weights) {
    size = 0;
    for (const double weight : weights) size += member_target(*request.num_samples, weight);
  }
  return build_weighted_blend(weights, size);
}

}  // namespace

BuiltSplit build_split(const SplitRequest& request, const OpenSource& open) {
  check_request(request);
  const Blend& blend = request.blend;
  BuiltSplit built;
  if (blend.prefixes.size() == 1 && !blend.weights) {
    built.members.push_back(build_member(request, open, blend.prefixes[0], request.num_samples));
    SplitMember& member = built.members[0];
    member.drawn = request.num_samples.value_or(member.dataset->size());
    built.dataset = member.dataset;
    return built;
  }
  if (blend.weights) built.weights = normalize_weights(*blend.weights);
  for (std::size_t i = 0; i < blend.prefixes.size(); ++i) {
    std::optional<std::int64_t> wanted;
    if (blend.weights) wanted = member_target_with_surplus(*request.num_samples, built.weights[i], request.surplus);
    built.members.push_back(build_member(request, open, blend.prefixes[i], wanted));
  }
  if (!blend.weights) built.weights = shares_by_size(request, built.members);
  BlendIndex index = build_index(request, built.members, built.weights);
  std::vector<std::shared_ptr<const Dataset>> datasets;
  for (std::size_t i = 0; i < built.members.size(); ++i) {
    built.members[i].drawn = index.counts[i];
    datasets.push_back(built.members[i].dataset);
  }
  const auto blended = std::make_shared<const BlendedDataset>(std::move(datasets), blend.prefixes, std::move(index));
  built.blend = &blended->index();
  built.dataset = blended;
  return built;
}

}  // namespace megatron::data
