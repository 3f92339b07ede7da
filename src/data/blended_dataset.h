// Several data sets read in a fixed interleaving: Megatron-LM's blends (`--data-path w1 p1 w2 p2 …`).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/index_array.h"

namespace megatron::data {

/// Prefixes and, if given, one weight each.
struct Blend {
  std::vector<std::string> prefixes;
  std::optional<std::vector<double>> weights;
  bool empty() const { return prefixes.empty(); }
};

/// The list of a data path option: of even length with numbers in every first place = weights and prefixes, otherwise
/// prefixes only. Throws ConfigError for a mixture and for weights that are not positive and finite.
Blend parse_blend(const std::vector<std::string>& list, const char* option);

/// Weights divided by their sum.
std::vector<double> normalize_weights(const std::vector<double>& weights);

/// Samples of a weighted member out of `size`: ceil(size·weight); and how many to prepare for it:
/// ceil(ceil(size·weight)·(1 + surplus)).
std::int64_t member_target(std::int64_t size, double weight);
std::int64_t member_target_with_surplus(std::int64_t size, double weight, double surplus);

/// Which member gives sample i, and which of its samples that is.
struct BlendIndex {
  std::vector<std::int16_t> member;
  IndexArray sample;
  std::vector<std::int64_t> counts;  // samples drawn from each member
};

/// Sample i comes from the member that is furthest behind its share: largest weight·max(i, 1) − drawn so far, the first
/// of equals. `weights` sum to 1.
BlendIndex build_weighted_blend(const std::vector<double>& weights, std::int64_t size);
/// The same rule with shares proportional to `sizes` (all > 0), each member drawn exactly as often as its size.
BlendIndex build_exhaustive_blend(const std::vector<std::int64_t>& sizes);

class BlendedDataset final : public Dataset {
 public:
  /// Members must hold as many samples as the index draws from them, else ConfigError naming the member (`names`).
  BlendedDataset(std::vector<std::shared_ptr<const Dataset>> members, const std::vector<std::string>& names,
                 BlendIndex index);
  std::int64_t size() const override { return index_.sample.size(); }
  Sample get(std::int64_t index) const override;
  const BlendIndex& index() const { return index_; }

 private:
  std::vector<std::shared_ptr<const Dataset>> members_;
  BlendIndex index_;
};

}  // namespace megatron::data
