// Cutting text into the pieces that a tokenizer's model sees one by one: hand-written scanners for the patterns that
// published tokenizers use, recognised by their exact text, and PCRE2 for every other regular expression.
// Texts are UTF-8; a byte that is not part of a character counts as a character of no class. Splitters are immutable
// and shared by threads. Time is linear in the text for the known patterns.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::tokenizer {

/// text[begin, end), never empty.
struct Piece {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// What becomes of a match, as in HuggingFace's `Split`.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

class Splitter {
 public:
  virtual ~Splitter() = default;

  /// Fills `pieces` (at least one) with the next pieces of `text` from byte `at` on and moves `at` behind them.
  /// Returns how many there are; 0: the text is done. Start with at = 0.
  virtual std::size_t next(std::string_view text, std::size_t& at, std::span<Piece> pieces) const = 0;

  /// All pieces of `text`.
  std::vector<Piece> split(std::string_view text) const;
};

/// Splits by a regular expression (Oniguruma's dialect as far as PCRE2 shares it; \s is Unicode's White_Space, \d its
/// decimal digits, \p{..} its categories). `invert`: what lies between the matches counts as the match.
/// Throws ConfigError with the expression, the position and the reason if it is not understood.
std::unique_ptr<Splitter> make_splitter(std::string_view regex, SplitBehavior behavior, bool invert = false);

/// Splits at every occurrence of `literal` (not empty), from left to right.
std::unique_ptr<Splitter> make_literal_splitter(std::string_view literal, SplitBehavior behavior, bool invert = false);

/// The whole text is one piece.
std::unique_ptr<Splitter> make_whole_splitter();

/// True if `regex` has a hand-written scanner.
bool is_known_pattern(std::string_view regex);

/// The regular expressions of known tokenizers: "gpt2" (also "r50k"), "cl100k", "o200k", "llama3", "qwen2", and
/// Megatron-LM's "v1" and "v2". Empty for another name.
std::string_view named_pattern(std::string_view name);

}  // namespace megatron::tokenizer
