#include "data/split_builder.h"

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "base/thread_pool.h"
#include "data/blend_cache.h"

namespace megatron::data {
namespace {

SplitMember build_member(const SplitRequest& request, const std::shared_ptr<const SequenceSource>& source,
                         const std::string& prefix, std::optional<std::int64_t> num_samples) {
  SplitMember member{prefix, split_range(request.share, source->num_sequences()), num_samples, nullptr, 0, "", ""};
  GptDatasetConfig config = request.config;
  config.index.num_samples = num_samples;
  const bool cached = !request.cache.folder.empty();
  if (cached) member.description = gpt_description(request.cache, prefix, request.name, config.index);
  try {
    GptIndex index = cached_gpt_index(
        request.cache, member.description, request.name, config.index, member.range,
        [&source](std::int64_t i) { return source->length(i); }, member.note);
    member.dataset = std::make_shared<const GptDataset>(source, config, std::move(index));
  } catch (const ConfigError& error) {
    throw ConfigError(
        str_cat(prefix, ": the ", kSplitNames[static_cast<std::size_t>(request.name)], " split ", error.what()));
  }
  return member;
}

/// All members of a blend, by several threads; the first of them that fails is told.
std::vector<SplitMember> build_members(const SplitRequest& request, const OpenSource& open,
                                       const std::vector<double>& weights) {
  const Blend& blend = request.blend;
  const std::size_t count = blend.prefixes.size();
  std::vector<std::shared_ptr<const SequenceSource>> sources;
  for (const std::string& prefix : blend.prefixes) sources.push_back(open(prefix));
  std::vector<SplitMember> members(count);
  std::vector<std::exception_ptr> errors(count);
  ThreadPool pool(static_cast<int>(std::clamp<std::size_t>(count, 1, static_cast<std::size_t>(request.num_threads))),
                  /*spin=*/0);
  pool.parallel_for(static_cast<std::int64_t>(count), [&](std::int64_t at, int) {
    const auto i = static_cast<std::size_t>(at);
    try {
      std::optional<std::int64_t> wanted;
      if (blend.weights) wanted = member_target_with_surplus(*request.num_samples, weights[i], request.surplus);
      members[i] = build_member(request, sources[i], blend.prefixes[i], wanted);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors)
    if (error != nullptr) std::rethrow_exception(error);
  return members;
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
  std::int64_t all = 0;
  for (const SplitMember& member : members) {
    all += member.dataset->size();
    if (member.dataset->size() == 0)
      throw ConfigError(str_cat(member.prefix, ": the ", kSplitNames[static_cast<std::size_t>(request.name)],
                                " split yields no sample of length ", request.config.index.seq_length,
                                "; leave the file out of the blend"));
    sizes.push_back(static_cast<double>(member.dataset->size()));
  }
  if (request.num_samples && *request.num_samples > all)
    throw ConfigError(
        str_cat("the ", kSplitNames[static_cast<std::size_t>(request.name)], " split: ", *request.num_samples,
                " samples are asked of it, but its ", members.size(),
                " files, each read once because they have no weights, hold ", all, "; give weights, or ask for fewer (",
                request.name == SplitName::train ? "--train-iters, --train-samples" : "--eval-iters", ")"));
  return normalize_weights(sizes);
}

BlendPlan plan_of(const SplitRequest& request, const std::vector<SplitMember>& members,
                  const std::vector<double>& weights) {
  BlendPlan plan;
  if (!request.num_samples) {
    for (const SplitMember& member : members) plan.sizes.push_back(member.dataset->size());
    return plan;
  }
  plan.weights = weights;
  plan.size = request.num_samples;
  if (request.blend.weights) {
    plan.size = 0;
    for (const double weight : weights) *plan.size += member_target(*request.num_samples, weight);
  }
  return plan;
}

BlendIndex build_index(const SplitRequest& request, BuiltSplit& built) {
  const BlendPlan plan = plan_of(request, built.members, built.weights);
  std::string description;
  if (!request.cache.folder.empty()) {
    std::vector<std::string> members;
    for (const SplitMember& member : built.members) members.push_back(member.description);
    description = blend_description(members, request.name, plan);
  }
  return cached_blend(request.cache, description, request.name, plan, built.note);
}

}  // namespace

BuiltSplit build_split(const SplitRequest& request, const OpenSource& open) {
  check_request(request);
  const Blend& blend = request.blend;
  BuiltSplit built;
  if (blend.prefixes.size() == 1 && !blend.weights) {
    built.members.push_back(build_member(request, open(blend.prefixes[0]), blend.prefixes[0], request.num_samples));
    SplitMember& member = built.members[0];
    member.drawn = request.num_samples.value_or(member.dataset->size());
    built.dataset = member.dataset;
    return built;
  }
  if (blend.weights) built.weights = normalize_weights(*blend.weights);
  built.members = build_members(request, open, built.weights);
  if (!blend.weights) built.weights = shares_by_size(request, built.members);
  BlendIndex index = build_index(request, built);
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
