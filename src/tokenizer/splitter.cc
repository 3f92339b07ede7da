#include "tokenizer/splitter.h"

#include <array>
#include <optional>

#include "base/check.h"
#include "tokenizer/known_patterns.h"
#include "tokenizer/regex.h"

namespace megatron::tokenizer {
namespace {

class LiteralSearcher {
 public:
  explicit LiteralSearcher(const std::string& literal) : literal_(literal) {}
  std::optional<Piece> find(std::string_view text, std::size_t from) const {
    const std::size_t at = text.find(literal_, from);
    if (at == std::string_view::npos) return std::nullopt;
    return Piece{at, at + literal_.size()};
  }

 private:
  const std::string& literal_;
};

/// A text as matches and what lies between them.
template <typename Searcher>
class Segments {
 public:
  struct Segment {
    std::size_t end = 0;
    bool match = false;
  };

  Segments(Searcher& searcher, std::string_view text, bool invert)
      : searcher_(searcher), text_(text), invert_(invert) {}

  /// The segment that begins at `at`, which is below the end of the text. Positions grow from call to call, or repeat.
  Segment at(std::size_t at) {
    if (match_.end <= at && !all_found_) {
      if (const auto found = searcher_.find(text_, at))
        match_ = *found;
      else
        all_found_ = true;
    }
    if (all_found_) return {text_.size(), invert_};
    if (match_.begin > at) return {match_.begin, invert_};
    return {match_.end, !invert_};
  }

 private:
  Searcher& searcher_;
  std::string_view text_;
  bool invert_;
  bool all_found_ = false;
  Piece match_;
};

/// Fills pieces as the behaviour says. Only `at` is kept from call to call: it is always where a piece begins.
template <typename Searcher>
std::size_t fill_pieces(Searcher& searcher, std::string_view text, SplitBehavior behavior, bool invert, std::size_t& at,
                        std::span<Piece> pieces) {
  Segments<Searcher> segments(searcher, text, invert);
  std::size_t count = 0;
  while (count < pieces.size() && at < text.size()) {
    const std::size_t begin = at;
    const auto first = segments.at(begin);
    at = first.end;
    if (behavior == SplitBehavior::removed && first.match) continue;
    const bool may_join = behavior == SplitBehavior::merged_with_previous ? !first.match
                          : behavior == SplitBehavior::merged_with_next   ? first.match
                                                                          : behavior == SplitBehavior::contiguous;
    while (may_join && at < text.size()) {
      const auto second = segments.at(at);
      const bool same = second.match == first.match;
      if (same != (behavior == SplitBehavior::contiguous)) break;
      at = second.end;
      if (behavior != SplitBehavior::contiguous) break;
    }
    pieces[count++] = {begin, at};
  }
  return count;
}

/// Splits at what a Searcher of `Pattern` finds.
template <typename Pattern, typename Searcher>
class SearchSplitter final : public Splitter {
 public:
  SearchSplitter(std::string_view pattern, SplitBehavior behavior, bool invert)
      : pattern_(pattern), behavior_(behavior), invert_(invert) {}

  std::size_t next(std::string_view text, std::size_t& at, std::span<Piece> pieces) const override {
    Searcher searcher(pattern_);
    return fill_pieces(searcher, text, behavior_, invert_, at, pieces);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

using RegexSplitter = SearchSplitter<Regex, Regex::Searcher>;
using LiteralSplitter = SearchSplitter<std::string, LiteralSearcher>;

class WholeSplitter final : public Splitter {
 public:
  std::size_t next(std::string_view text, std::size_t& at, std::span<Piece> pieces) const override {
    if (at >= text.size()) return 0;
    pieces[0] = {at, text.size()};
    at = text.size();
    return 1;
  }
};

}  // namespace

std::vector<Piece> Splitter::split(std::string_view text) const {
  std::vector<Piece> all;
  std::array<Piece, 64> some;
  std::size_t at = 0;
  while (const std::size_t count = next(text, at, some)) all.insert(all.end(), some.begin(), some.begin() + count);
  return all;
}

std::unique_ptr<Splitter> make_splitter(std::string_view regex, SplitBehavior behavior, bool invert) {
  // Where every byte is part of a match, these leave the matches as they are.
  const bool matches_stay = invert ? behavior == SplitBehavior::removed || behavior == SplitBehavior::isolated
                                   : behavior != SplitBehavior::removed && behavior != SplitBehavior::contiguous;
  if (matches_stay)
    if (auto known = make_known_splitter(regex)) return known;
  return std::make_unique<RegexSplitter>(regex, behavior, invert);
}

std::unique_ptr<Splitter> make_literal_splitter(std::string_view literal, SplitBehavior behavior, bool invert) {
  MEGATRON_CHECK(!literal.empty());
  return std::make_unique<LiteralSplitter>(literal, behavior, invert);
}

std::unique_ptr<Splitter> make_whole_splitter() { return std::make_unique<WholeSplitter>(); }

}  // namespace megatron::tokenizer
