#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/unicode_text.h"
#include "tokenizer/word_cache.h"

namespace megatron::tokenizer {
namespace {

/// How much worse an unknown character is than the worst piece.
constexpr double kUnknownPenalty = 10.0;

class Unigram final : public WordModel {
  using Sums = UnigramFile::Sums;

 public:
  Unigram(const UnigramFile& file, const Unreachable& unreachable) : file_(file), fallback_(file.vocabulary) {
    double lowest = std::numeric_limits<double>::infinity();
    for (std::size_t id = 0; id < file.scores.size(); ++id) {
      lowest = std::min(lowest, file.scores[id]);
      const std::string_view piece = file.vocabulary.text(id);
      if (!piece.empty() && !(id < unreachable.size() && unreachable[id]))
        trie_.add(piece, static_cast<std::uint32_t>(id));
    }
    unknown_score_ = rounded(lowest - kUnknownPenalty);
  }

  void encode(std::string_view word, std::vector<std::int64_t>& ids) const override {
    cache_->append(word, 0, ids, [this](std::string_view w, auto& to) { encode_new(w, to); });
  }

 private:
  void encode_new(std::string_view word, std::vector<std::int64_t>& ids) const {
    const std::vector<Best> best = search(word);
    // Backwards; neighbouring unknown pieces become one.
    std::vector<std::uint32_t> reversed;
    std::size_t unknown_end = 0;
    const auto flush = [&](std::size_t begin) {
      if (unknown_end > 0) append_unknown(word.substr(begin, unknown_end - begin), reversed);
      unknown_end = 0;
    };
    for (std::size_t end = word.size(); end > 0;) {
      const Best& node = best[end];
      if (file_.unknown && node.id == *file_.unknown) {
        if (unknown_end == 0) unknown_end = end;
      } else {
        flush(end);
        reversed.push_back(node.id);
      }
      end -= node.length;
    }
    flush(0);
    ids.insert(ids.end(), reversed.rbegin(), reversed.rend());
  }

  /// The best way to end at a byte: with which piece, how long, and the sum of the scores.
  struct Best {
    double score = 0;
    std::uint32_t id = 0;
    std::uint32_t length = 0;  // 0: no way yet
  };

  double rounded(double score) const {
    return file_.sums == Sums::in_64_bits ? score : static_cast<double>(static_cast<float>(score));
  }

  std::vector<Best> search(std::string_view word) const {
    if (word.size() > std::numeric_limits<std::uint32_t>::max()) throw Error("a word of more than 4 GiB");
    std::vector<Best> best(word.size() + 1);
    const auto offer = [&best, this](std::size_t end, std::size_t length, double score, std::uint32_t id) {
      Best& to = best[end];
      const double kept = rounded(score), compared = file_.sums == Sums::rounded_when_kept ? score : kept;
      if (to.length == 0 || compared > to.score) to = {kept, id, static_cast<std::uint32_t>(length)};
    };
    for (std::size_t at = 0; at < word.size();) {
      const double here = best[at].score;
      const std::size_t length = character_at(word, at).length;
      bool single = false;
      std::uint32_t node = ByteTrie::kRoot;
      for (std::size_t end = at; end < word.size();) {
        node = trie_.step(node, static_cast<unsigned char>(word[end]));
        if (node == ByteTrie::kNone) break;
        ++end;
        const std::uint32_t id = trie_.value(node);
        if (id == ByteTrie::kNone) continue;
        offer(end, end - at, file_.scores[id] + here, id);
        single = single || end - at == length;
      }
      if (!single) {
        if (!file_.unknown)
          throw Error(str_cat("'", word.substr(at, length), "' has no piece, and nothing stands for unknown"));
        offer(at + length, length, rounded(unknown_score_ + here), *file_.unknown);
      }
      at += length;
    }
    return best;
  }

  /// Appends the ids of unknown text in reverse.
  void append_unknown(std::string_view text, std::vector<std::uint32_t>& reversed) const {
    if (const auto id = file_.vocabulary.find(text);
        id && trie_.walk(text) != ByteTrie::kNone && trie_.value(trie_.walk(text)) == *id) {
      reversed.push_back(*id);
      return;
    }
    const std::size_t from = reversed.size();
    if (file_.byte_fallback && fallback_.append(text, reversed)) {
      std::reverse(reversed.begin() + static_cast<std::ptrdiff_t>(from), reversed.end());
      return;
    }
    reversed.push_back(*file_.unknown);
  }

  const UnigramFile& file_;
  FallbackBytes fallback_;
  ByteTrie trie_;
  double unknown_score_ = 0;
  std::unique_ptr<WordCache> cache_ = std::make_unique<WordCache>();
};

}  // namespace

UnigramFile UnigramFile::read(const JsonNode& node) {
  node.allow_only({"type", "vocab", "unk_id", "byte_fallback"});
  UnigramFile file;
  const JsonNode vocab = node.required("vocab");
  vocab.for_each_element([&](std::size_t index, const JsonNode& entry) {
    if (!entry.is_array() || entry.size() != 2) entry.refuse("must be [piece, score]");
    file.vocabulary.add(entry.element(0).string(), static_cast<std::int64_t>(index));
    file.scores.push_back(entry.element(1).number());
  });
  if (file.scores.empty()) vocab.refuse("is empty");
  if (const JsonNode unknown = node["unk_id"]; !unknown.is_null()) {
    const std::int64_t id = unknown.integer();
    if (id < 0 || id >= static_cast<std::int64_t>(file.scores.size()))
      unknown.refuse(str_cat("id ", id, " is out of range: ", file.scores.size(), " pieces"));
    file.unknown = static_cast<std::uint32_t>(id);
  }
  file.byte_fallback = node.boolean_or("byte_fallback", false);
  return file;
}

std::unique_ptr<WordModel> make_unigram(const UnigramFile& file, const Unreachable& unreachable) {
  return std::make_unique<Unigram>(file, unreachable);
}

}  // namespace megatron::tokenizer
