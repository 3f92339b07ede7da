// SentencePiece's table of replacements: [u32 size of the trie][trie][texts], the trie a double array of 32-bit units
// (darts), the texts ended by NUL and named by their offset. Immutable and shared by threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::tokenizer {

class Charsmap {
 public:
  struct Match {
    std::size_t length = 0;  // of the key
    std::string_view replacement;
  };

  /// No keys.
  Charsmap() = default;
  /// Unset for damaged bytes; `why` then says what is wrong.
  static std::optional<Charsmap> read(std::string_view bytes, std::string& why);

  /// The shortest key that `text` begins with.
  std::optional<Match> shortest(std::string_view text) const {
    return find(text, [](const Match&) { return false; });
  }
  /// The longest one.
  std::optional<Match> longest(std::string_view text) const {
    std::optional<Match> best;
    find(text, [&best](const Match& match) {
      best = match;
      return true;
    });
    return best;
  }

 private:
  /// Calls more(match) for every key that `text` begins with, shortest first, until it says no; returns the last one.
  template <typename More>
  std::optional<Match> find(std::string_view text, const More& more) const {
    if (units_.empty()) return std::nullopt;
    std::size_t node = offset_of(units_[0]);
    for (std::size_t at = 0; at < text.size(); ++at) {
      const auto byte = static_cast<unsigned char>(text[at]);
      if (byte == 0) return std::nullopt;
      node ^= byte;
      if (node >= units_.size()) return std::nullopt;
      const std::uint32_t unit = units_[node];
      if ((unit & 0x800000FFU) != byte) return std::nullopt;
      node ^= offset_of(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (node >= units_.size()) return std::nullopt;
      const std::size_t begin = units_[node] & 0x7FFFFFFFU;
      if (begin >= texts_.size()) return std::nullopt;
      const Match match{at + 1, std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin)};
      if (!more(match)) return match;
    }
    return std::nullopt;
  }

  static std::size_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace megatron::tokenizer
