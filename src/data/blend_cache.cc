#include "data/blend_cache.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "data/npy.h"
#include "data/output_file.h"

namespace megatron::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kClass = "BlendedDataset";

/// Fills in how many samples each member gives; false unless every member's samples are taken in their order.
bool count_members(BlendIndex& index, const BlendPlan& plan) {
  index.counts.assign(plan.num_members(), 0);
  for (std::int64_t i = 0; i < index.sample.size(); ++i) {
    const auto member = static_cast<std::size_t>(index.member[static_cast<std::size_t>(i)]);
    if (member >= index.counts.size() || index.sample[i] != index.counts[member]++) return false;
  }
  return plan.size || index.counts == plan.sizes;
}

CachedFiles files_at(std::string base) { return {std::move(base), {"dataset_index.npy", "dataset_sample_index.npy"}}; }

std::optional<BlendIndex> load(const std::string& base, const std::string& description, const BlendPlan& plan) {
  const CachedFiles files = files_at(base);
  if (!holds_description(files, description)) return {};
  try {
    if (checksums_agree(files) == false) return {};
    const NpyFile members = open_npy(base + "dataset_index.npy"), samples = open_npy(base + "dataset_sample_index.npy");
    const std::vector<std::int64_t> shape = {plan.num_samples()};
    if (members.shape != shape || samples.shape != shape || members.descr != "<i2" || samples.descr != "<i8") return {};
    BlendIndex index{members.int16_values(), samples.column(0), {}};
    if (!count_members(index, plan)) return {};
    return index;
  } catch (const IoError&) {
    return {};  // damaged or not there: built anew
  }
}

void save(const std::string& base, const std::string& description, const BlendIndex& index) {
  std::filesystem::create_directories(std::filesystem::path(base).parent_path());
  const std::int64_t samples = index.sample.size();
  write_npy(base + "dataset_index.npy", "<i2", samples, 0,
            [&](std::int64_t i, std::int64_t) { return index.member[static_cast<std::size_t>(i)]; });
  write_npy(base + "dataset_sample_index.npy", "<i8", samples, 0,
            [&](std::int64_t i, std::int64_t) { return index.sample[i]; });
  write_description(files_at(base), description);
}

}  // namespace

std::int64_t BlendPlan::num_samples() const {
  return size ? *size : std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

std::string blend_description(const std::vector<std::string>& members, SplitName split, const BlendPlan& plan) {
  Json json;
  json["class"] = kClass;
  json["datasets"] = Json::array();
  for (const std::string& member : members) json["datasets"].push_back(Json::parse(member));
  json["split"] = kSplitNames[static_cast<std::size_t>(split)];
  json["weights"] = plan.size ? Json(plan.weights) : Json(plan.sizes);
  json["size"] = plan.size ? Json(*plan.size) : Json(nullptr);
  return json.dump(4, ' ', true, Json::error_handler_t::replace);
}

BlendIndex build_blend(const BlendPlan& plan) {
  return plan.size ? build_weighted_blend(plan.weights, *plan.size) : build_exhaustive_blend(plan.sizes);
}

BlendIndex cached_blend(const IndexCache& cache, const std::string& description, SplitName split, const BlendPlan& plan,
                        std::string& note) {
  if (cache.folder.empty()) return build_blend(plan);
  const std::string base = cache_base(cache, description, kClass, split);
  if (auto index = load(base, description, plan)) return std::move(*index);
  BlendIndex index = build_blend(plan);
  note = keep_indices(cache, [&] { save(base, description, index); });
  return index;
}

}  // namespace megatron::data
