#include "tokenizer/special_tokens.h"

#include <algorithm>

#include "base/check.h"

namespace megatron::tokenizer {

SpecialTokens::SpecialTokens(std::vector<std::pair<std::string, std::int64_t>> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  tokens_.erase(
      std::unique(tokens_.begin(), tokens_.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
      tokens_.end());
  for (std::size_t i = 0; i < tokens_.size(); ++i) by_id_.emplace_back(tokens_[i].second, i);
  std::sort(by_id_.begin(), by_id_.end());
  for (const auto& [text, id] : tokens_) {
    MEGATRON_CHECK(!text.empty(), "the marker with id ", id);
    first_byte_[static_cast<unsigned char>(text[0])] = true;
    longest_ = std::max(longest_, text.size());
  }
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t from) const {
  if (tokens_.empty()) return std::nullopt;
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!first_byte_[static_cast<unsigned char>(text[at])]) continue;
    // Every marker that stands here is a prefix of the greatest marker that is not above the text, as far as that
    // marker agrees with the text.
    const std::string_view here = text.substr(at, longest_);
    for (std::string_view agreed = here; !agreed.empty();) {
      auto after = std::upper_bound(tokens_.begin(), tokens_.end(), agreed, [](std::string_view h, const auto& token) {
        return h < std::string_view(token.first);
      });
      if (after == tokens_.begin()) break;
      const auto& [token, id] = *--after;
      if (agreed.starts_with(token)) return Match{at, at + token.size(), id};
      const auto stop = std::mismatch(agreed.begin(), agreed.end(), token.begin(), token.end()).first;
      agreed = agreed.substr(0, static_cast<std::size_t>(stop - agreed.begin()));
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> SpecialTokens::id_of(std::string_view text) const {
  const auto found = std::lower_bound(tokens_.begin(), tokens_.end(), text,
                                      [](const auto& token, std::string_view t) { return token.first < t; });
  if (found == tokens_.end() || found->first != text) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> SpecialTokens::text_of(std::int64_t id) const {
  const auto found = std::lower_bound(by_id_.begin(), by_id_.end(), id,
                                      [](const auto& entry, std::int64_t wanted) { return entry.first < wanted; });
  if (found == by_id_.end() || found->first != id) return std::nullopt;
  return tokens_[found->second].first;
}

}  // namespace megatron::tokenizer
