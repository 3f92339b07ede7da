// Finding markers such as <|endoftext|> in text: the longest one at the leftmost place wins.
// Immutable and shared by threads; time is linear in the text times the longest marker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron::tokenizer {

class SpecialTokens {
 public:
  struct Match {
    std::size_t begin = 0, end = 0;
    std::int64_t id = 0;
  };

  SpecialTokens() = default;
  /// (text, id); texts are not empty. Of equal texts the first counts.
  explicit SpecialTokens(std::vector<std::pair<std::string, std::int64_t>> tokens);

  bool empty() const { return tokens_.empty(); }
  /// The first marker that begins at `from` or later.
  std::optional<Match> find(std::string_view text, std::size_t from) const;
  std::optional<std::int64_t> id_of(std::string_view text) const;
  /// The text of a marker's id; unset: not a marker.
  std::optional<std::string_view> text_of(std::int64_t id) const;
  const std::vector<std::pair<std::string, std::int64_t>>& tokens() const { return tokens_; }

 private:
  std::vector<std::pair<std::string, std::int64_t>> tokens_;  // sorted by text
  std::vector<std::pair<std::int64_t, std::size_t>> by_id_;   // id and place in tokens_, sorted
  bool first_byte_[256] = {};
  std::size_t longest_ = 0;
};

}  // namespace megatron::tokenizer
