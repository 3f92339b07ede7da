// The interleaving of a blend kept between runs in Megatron-LM's files: HASH-BlendedDataset-SPLIT-{description.txt,
// dataset_index.npy, dataset_sample_index.npy}, HASH = MD5 of the description. Either program reads the other's files;
// like the members' (index_cache.h) they save time and change nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/blended_dataset.h"
#include "data/index_cache.h"

namespace megatron::data {

/// What a blend is made of: shares that sum to 1 and a number of samples, or (size unset) the members' numbers of
/// samples, each of which is read once.
struct BlendPlan {
  std::vector<double> weights;      // where `size` is set
  std::vector<std::int64_t> sizes;  // where it is not
  std::optional<std::int64_t> size;

  std::size_t num_members() const { return size ? weights.size() : sizes.size(); }
  std::int64_t num_samples() const;
};

/// The text whose MD5 names the files; `members`: the members' own descriptions.
std::string blend_description(const std::vector<std::string>& members, SplitName split, const BlendPlan& plan);

BlendIndex build_blend(const BlendPlan& plan);

/// The same as build_blend; from the files under `description` if they fit, else built and written there. What cannot
/// be written is told in `note`, and the run goes on. Without a folder nothing is read or written.
BlendIndex cached_blend(const IndexCache& cache, const std::string& description, SplitName split, const BlendPlan& plan,
                        std::string& note);

}  // namespace megatron::data
