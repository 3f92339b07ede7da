#include "data/blended_dataset.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace megatron::data {
namespace {

std::optional<double> parse_number(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  if (first == std::string::npos) return std::nullopt;
  const char* begin = text.data() + first + (text[first] == '+' ? 1 : 0);
  const char* end = text.data() + last + 1;
  double value = 0.0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

void check_members(std::size_t members) {
  if (members > static_cast<std::size_t>(std::numeric_limits<std::int16_t>::max()))
    throw ConfigError(str_cat("a blend of ", members, " data sets: at most 32767"));
}

}  // namespace

Blend parse_blend(const std::vector<std::string>& list, const char* option) {
  Blend blend;
  std::vector<double> weights;
  std::string bad;
  if (list.size() % 2 == 0) {
    for (std::size_t i = 0; i < list.size(); i += 2) {
      if (const auto weight = parse_number(list[i]))
        weights.push_back(*weight);
      else
        bad = list[i];
    }
  }
  if (weights.empty()) {
    blend.prefixes = list;
    return blend;
  }
  if (!bad.empty())
    throw ConfigError(
        str_cat(option, " ", bad, ": a number is expected here: give a weight before every path or none"));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0.0) || !std::isfinite(weights[i]))
      throw ConfigError(str_cat(option, " ", list[2 * i], ": the weight of ", list[2 * i + 1], " must be positive"));
    blend.prefixes.push_back(list[2 * i + 1]);
  }
  blend.weights = std::move(weights);
  return blend;
}

std::vector<double> normalize_weights(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> shares = weights;
  for (double& share : shares) share /= sum;
  return shares;
}

std::int64_t member_target(std::int64_t size, double weight) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(size) * weight));
}

std::int64_t member_target_with_surplus(std::int64_t size, double weight, double surplus) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(member_target(size, weight)) * (1.0 + surplus)));
}

BlendIndex build_weighted_blend(const std::vector<double>& weights, std::int64_t size) {
  check_members(weights.size());
  MEGATRON_CHECK(!weights.empty() && size >= 0, weights.size(), " members, size ", size);
  BlendIndex index{std::vector<std::int16_t>(static_cast<std::size_t>(size)), IndexArray(size, size),
                   std::vector<std::int64_t>(weights.size(), 0)};
  for (std::int64_t i = 0; i < size; ++i) {
    const auto drawn = static_cast<double>(std::max<std::int64_t>(i, 1));
    std::size_t best = 0;
    double most = weights[0] * drawn - static_cast<double>(index.counts[0]);
    for (std::size_t j = 1; j < weights.size(); ++j) {
      const double behind = weights[j] * drawn - static_cast<double>(index.counts[j]);
      if (behind > most) {
        most = behind;
        best = j;
      }
    }
    index.member[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(best);
    index.sample.set(i, index.counts[best]++);
  }
  return index;
}

BlendIndex build_exhaustive_blend(const std::vector<std::int64_t>& sizes) {
  check_members(sizes.size());
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) {
    MEGATRON_CHECK_GT(size, 0, "a member without samples cannot be blended");
    total += size;
  }
  BlendIndex index{std::vector<std::int16_t>(static_cast<std::size_t>(total)), IndexArray(total, total),
                   std::vector<std::int64_t>(sizes.size(), 0)};
  for (std::int64_t i = 0; i < total; ++i) {
    const auto drawn = static_cast<double>(std::max<std::int64_t>(i, 1));
    std::size_t best = sizes.size();
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < sizes.size(); ++j) {
      if (index.counts[j] == sizes[j]) continue;
      const double share = static_cast<double>(sizes[j]) / static_cast<double>(total);
      const double behind = share * drawn - static_cast<double>(index.counts[j]);
      if (behind > most) {
        most = behind;
        best = j;
      }
    }
    index.member[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(best);
    index.sample.set(i, index.counts[best]++);
  }
  return index;
}

BlendedDataset::BlendedDataset(std::vector<std::shared_ptr<const Dataset>> members,
                               const std::vector<std::string>& names, BlendIndex index)
    : members_(std::move(members)), index_(std::move(index)) {
  MEGATRON_CHECK_EQ(members_.size(), index_.counts.size());
  MEGATRON_CHECK_EQ(members_.size(), names.size());
  for (std::size_t j = 0; j < members_.size(); ++j)
    if (members_[j]->size() < index_.counts[j])
      throw ConfigError(str_cat(names[j], ": the blend draws ", index_.counts[j], " samples, but only ",
                                members_[j]->size(),
                                " exist; give weights, ask for fewer samples or raise --mid-level-dataset-surplus"));
}

Sample BlendedDataset::get(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  const auto member = static_cast<std::size_t>(index_.member[static_cast<std::size_t>(index)]);
  return members_[member]->get(index_.sample[index]);
}

}  // namespace megatron::data
