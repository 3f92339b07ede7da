#include "tokenizer/known_patterns.h"

#include <algorithm>
#include <array>

#include "tokenizer/char_classes.h"

namespace megatron::tokenizer {
namespace {

enum class Family {
  gpt2,    // a space belongs to the word, the number or the signs behind it
  cl100k,  // any one sign belongs to the word behind it; numbers are cut
  o200k    // the same, and words are cut where capitals begin
};

struct Pattern {
  std::string_view name;  // empty: another spelling of one above
  std::string_view regex;
  Family family;
  bool contractions = true;      // 's 't 're 've 'm 'll 'd
  int digits = 0;                // longest number; 0: any length
  bool all_final_space = false;  // blanks that end the text are one piece even with line breaks among them
};

#define MEGATRON_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define MEGATRON_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define MEGATRON_SUFFIX R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define MEGATRON_WORD R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define MEGATRON_TAIL R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define MEGATRON_SIGNS R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"

constexpr Pattern kPatterns[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Family::gpt2},
    {"r50k", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)", Family::gpt2},
    {"", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Family::gpt2},
    {"cl100k",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|)"
     R"(\s+(?!\S)|\s)",
     Family::cl100k, true, 3, true},
    {"",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     Family::cl100k, true, 3},
    {"llama3", MEGATRON_SUFFIX "|" MEGATRON_WORD R"(|\p{N}{1,3}|)" MEGATRON_SIGNS "|" MEGATRON_TAIL, Family::cl100k,
     true, 3},
    {"qwen2", MEGATRON_SUFFIX "|" MEGATRON_WORD R"(|\p{N}|)" MEGATRON_SIGNS "|" MEGATRON_TAIL, Family::cl100k, true, 1},
    {"v1", MEGATRON_WORD R"(|\p{N}|)" MEGATRON_SIGNS "|" MEGATRON_TAIL, Family::cl100k, false, 1},
    {"o200k",
     R"([^\r\n\p{L}\p{N}]?)" MEGATRON_UPPER "*" MEGATRON_LOWER "+" MEGATRON_SUFFIX
     R"(?|[^\r\n\p{L}\p{N}]?)" MEGATRON_UPPER "+" MEGATRON_LOWER "*" MEGATRON_SUFFIX
     R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" MEGATRON_TAIL,
     Family::o200k, true, 3},
    {"v2",
     R"([^\r\n\p{L}\p{N}]?)" MEGATRON_UPPER "*" MEGATRON_LOWER R"(+|[^\r\n\p{L}\p{N}]?)" MEGATRON_UPPER
     "+" MEGATRON_LOWER R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" MEGATRON_TAIL,
     Family::o200k, false, 1},
};

#undef MEGATRON_LOWER
#undef MEGATRON_UPPER
#undef MEGATRON_SUFFIX
#undef MEGATRON_WORD
#undef MEGATRON_TAIL
#undef MEGATRON_SIGNS

using C = CharClasses;

/// Reads one text. Positions are byte offsets.
class Scanner {
 public:
  Scanner(const CharClasses& classes, std::string_view text) : classes_(classes), text_(text) {}

  bool done(std::size_t at) const { return at >= text_.size(); }
  C::Char read(std::size_t at) const { return classes_.at(text_, at); }
  char byte(std::size_t at) const { return at < text_.size() ? text_[at] : '\0'; }

  /// Behind the characters from `at` on that have one of `bits`.
  std::size_t skip(std::size_t at, std::uint8_t bits) const {
    while (!done(at)) {
      const C::Char c = read(at);
      if ((c.bits & bits) == 0) break;
      at += c.length;
    }
    return at;
  }
  std::size_t skip_none_of(std::size_t at, std::uint8_t bits) const {
    while (!done(at)) {
      const C::Char c = read(at);
      if ((c.bits & bits) != 0) break;
      at += c.length;
    }
    return at;
  }
  std::size_t skip_numbers(std::size_t at, int most) const {
    if (most == 0) return skip(at, C::kNumber);
    for (int i = 0; i < most && !done(at); ++i) {
      const C::Char c = read(at);
      if ((c.bits & C::kNumber) == 0) break;
      at += c.length;
    }
    return at;
  }

  /// Behind the contraction at `at`, or `at` if there is none.
  std::size_t contraction(std::size_t at, bool any_case) const {
    if (byte(at) != '\'') return at;
    const auto lower = [&](std::size_t i) {
      const char c = byte(i);
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = lower(at + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    // U+017F is the small form of S.
    if (any_case && first == '\xc5' && byte(at + 2) == '\xbf') return at + 3;
    const char second = lower(at + 2);
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
      return at + 3;
    return at;
  }

  /// \s+(?!\S)|\s+: all blanks, but the last one stays for what follows unless it is the only one or the text ends.
  /// With `cut_at_lines` \s*[\r\n]+ comes first: up to the last line break.
  std::size_t blanks(std::size_t at, bool cut_at_lines, bool all_final_space) const {
    std::size_t end = at, last = at, behind_line = at;
    while (!done(end)) {
      const C::Char c = read(end);
      if ((c.bits & C::kSpace) == 0) break;
      last = end;
      end += c.length;
      if ((c.bits & C::kLineBreak) != 0) behind_line = end;
    }
    if (all_final_space && done(end)) return end;
    if (cut_at_lines && behind_line > at) return behind_line;
    return done(end) || last == at ? end : last;
  }

 private:
  const CharClasses& classes_;
  std::string_view text_;
};

constexpr std::uint8_t kNoSign = C::kSpace | C::kLetter | C::kNumber;

std::size_t next_gpt2(const Scanner& s, const Pattern&, std::size_t at) {
  C::Char c = s.read(at);
  std::size_t from = at;
  if (s.byte(at) == ' ' && !s.done(at + 1)) {
    from = at + 1;
    c = s.read(from);
  } else if (s.byte(at) == '\'') {
    if (const std::size_t end = s.contraction(at, /*any_case=*/false); end > at) return end;
  }
  if ((c.bits & C::kLetter) != 0) return s.skip(from + c.length, C::kLetter);
  if ((c.bits & C::kNumber) != 0) return s.skip(from + c.length, C::kNumber);
  if ((c.bits & C::kSpace) == 0) return s.skip_none_of(from + c.length, kNoSign);
  return s.blanks(at, /*cut_at_lines=*/false, /*all_final_space=*/false);
}

/// What cl100k and o200k do with everything but words, at a character `c`.
std::size_t next_without_word(const Scanner& s, const Pattern& p, std::size_t at, C::Char c) {
  if ((c.bits & C::kNumber) != 0) return s.skip_numbers(at, p.digits);
  std::size_t from = at;
  if (s.byte(at) == ' ' && !s.done(at + 1)) c = s.read(from = at + 1);
  if ((c.bits & kNoSign) == 0) {
    std::size_t end = s.skip_none_of(from + c.length, kNoSign);
    while (s.byte(end) == '\r' || s.byte(end) == '\n' || (p.family == Family::o200k && s.byte(end) == '/')) ++end;
    return end;
  }
  return s.blanks(at, /*cut_at_lines=*/true, p.all_final_space);
}

std::size_t next_cl100k(const Scanner& s, const Pattern& p, std::size_t at) {
  const C::Char c = s.read(at);
  if ((c.bits & C::kLetter) != 0) return s.skip(at + c.length, C::kLetter);
  if (p.contractions && s.byte(at) == '\'')
    if (const std::size_t end = s.contraction(at, /*any_case=*/true); end > at) return end;
  if ((c.bits & (C::kLineBreak | C::kNumber)) == 0 && !s.done(at + c.length)) {
    const C::Char second = s.read(at + c.length);
    if ((second.bits & C::kLetter) != 0) return s.skip(at + c.length + second.length, C::kLetter);
  }
  return next_without_word(s, p, at, c);
}

constexpr std::uint8_t kUpperLike = C::kUpper | C::kCaseless | C::kMark;
constexpr std::uint8_t kLowerLike = C::kLower | C::kCaseless | C::kMark;

/// Behind UPPER*LOWER+ from `at` on, where letters without case and marks count as both; `at` if that does not match.
std::size_t capital_word(const Scanner& s, std::size_t at) {
  std::size_t end = at, behind_both = at;
  while (!s.done(end)) {
    const C::Char c = s.read(end);
    if ((c.bits & kUpperLike) == 0) break;
    end += c.length;
    if ((c.bits & kLowerLike) != 0) behind_both = end;
  }
  const std::size_t lower_end = s.skip(end, kLowerLike);
  return lower_end > end ? lower_end : behind_both;
}

std::size_t next_o200k(const Scanner& s, const Pattern& p, std::size_t at) {
  const C::Char c = s.read(at);
  const bool sign = (c.bits & (C::kLineBreak | C::kNumber | C::kLetter)) == 0;
  const std::size_t behind = at + c.length;
  std::size_t end = at;
  if (sign) {
    if (const std::size_t word = capital_word(s, behind); word > behind) end = word;
  }
  if (end == at) end = capital_word(s, at);
  if (end == at && sign) {
    if (const std::size_t word = s.skip(behind, kUpperLike); word > behind) end = word;
  }
  if (end == at) end = s.skip(at, kUpperLike);
  if (end == at) return next_without_word(s, p, at, c);
  return p.contractions ? s.contraction(end, /*any_case=*/true) : end;
}

template <std::size_t (*next_end)(const Scanner&, const Pattern&, std::size_t)>
class KnownSplitter final : public Splitter {
 public:
  explicit KnownSplitter(const Pattern& pattern) : pattern_(pattern) {}

  std::size_t next(std::string_view text, std::size_t& at, std::span<Piece> pieces) const override {
    const Scanner scanner(classes_, text);
    std::size_t count = 0;
    while (count < pieces.size() && at < text.size()) {
      const std::size_t end = next_end(scanner, pattern_, at);
      pieces[count++] = {at, end};
      at = end;
    }
    return count;
  }

 private:
  Pattern pattern_;
  CharClasses classes_;
};

const Pattern* find_pattern(std::string_view regex) {
  const auto* found =
      std::find_if(std::begin(kPatterns), std::end(kPatterns), [&](const Pattern& p) { return p.regex == regex; });
  return found == std::end(kPatterns) ? nullptr : found;
}

}  // namespace

std::unique_ptr<Splitter> make_known_splitter(std::string_view regex) {
  const Pattern* pattern = find_pattern(regex);
  if (pattern == nullptr) return nullptr;
  switch (pattern->family) {
    case Family::gpt2:
      return std::make_unique<KnownSplitter<next_gpt2>>(*pattern);
    case Family::cl100k:
      return std::make_unique<KnownSplitter<next_cl100k>>(*pattern);
    case Family::o200k:
      return std::make_unique<KnownSplitter<next_o200k>>(*pattern);
  }
  return nullptr;
}

bool is_known_pattern(std::string_view regex) { return find_pattern(regex) != nullptr; }

std::string_view named_pattern(std::string_view name) {
  if (name.empty()) return {};
  for (const Pattern& pattern : kPatterns)
    if (pattern.name == name) return pattern.regex;
  return {};
}

}  // namespace megatron::tokenizer
