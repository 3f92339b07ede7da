#include "tokenizer/char_bpe.h"

#include <algorithm>

#include "base/check.h"
#include "tokenizer/joints.h"
#include "tokenizer/unicode_text.h"
#include "tokenizer/word_cache.h"

namespace megatron::tokenizer {
namespace {

constexpr std::uint32_t kNone = BpeMerges::kNone;

class CharBpe final : public WordModel {
 public:
  CharBpe(const BpeFile& file, const Unreachable& unreachable)
      : file_(file),
        unreachable_(unreachable),
        merges_(file.ranks.empty() ? BpeMerges(file.merges) : BpeMerges(file.merges, file.ranks)),
        fallback_(file.vocabulary),
        cache_(std::make_unique<WordCache>()) {
    for (unsigned char b = 0; b < 128; ++b) {
      const char c = static_cast<char>(b);
      ascii_[b] = file.vocabulary.find({&c, 1}).value_or(kNone);
    }
    may_cut_ = file.prefix.empty() && file.suffix.empty();  // these depend on where a character stands in its word
    for (const BpeMerge& merge : file.merges)
      if (may_cut_) joints_.add(file.vocabulary.text(merge.left), file.vocabulary.text(merge.right));
    unknown_are_bytes_ = may_cut_ && all_unknown_are_bytes();
  }

  void encode(std::string_view word, std::vector<std::int64_t>& ids) const override {
    if (file_.whole_words_first) {
      const auto whole = file_.vocabulary.find(word);
      if (whole && !(*whole < unreachable_.size() && unreachable_[*whole])) return ids.push_back(*whole);
    }
    for (std::size_t begin = 0, end = 0; begin < word.size(); begin = end) {
      end = may_cut_ ? part_end(word, begin) : word.size();
      cache_->append(word.substr(begin, end - begin), 0, ids,
                     [this](std::string_view part, auto& to) { merge(part, to); });
    }
  }

 private:
  void merge(std::string_view part, std::vector<std::int64_t>& ids) const {
    std::vector<std::uint32_t> symbols;
    symbols.reserve(part.size());
    spell(part, symbols);
    const std::size_t count = merges_.merge(symbols.data(), symbols.size());
    ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// The next place behind `begin` that no merge reaches over.
  std::size_t part_end(std::string_view word, std::size_t begin) const {
    std::size_t end = joints_.part_end(word, begin);
    if (unknown_are_bytes_) return end;
    // Unknown characters fuse or vanish, so that what is beside them depends on what follows.
    const auto known = [&](std::size_t at) {
      return id_of(word.substr(at, character_at(word, at).length), false, false) != kNone;
    };
    while (end < word.size() && !(known(character_before(word, end)) && known(end))) end = joints_.part_end(word, end);
    return end;
  }

  /// Every unknown character becomes the ids of its bytes, and no merge takes these.
  bool all_unknown_are_bytes() const {
    std::vector<std::uint32_t> bytes;
    for (unsigned b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(static_cast<unsigned char>(b));
      if (!file_.byte_fallback || !fallback_.append(std::string_view(&byte, 1), bytes)) return false;
    }
    std::sort(bytes.begin(), bytes.end());
    const auto is_byte = [&](std::uint32_t id) { return std::binary_search(bytes.begin(), bytes.end(), id); };
    return std::none_of(file_.merges.begin(), file_.merges.end(),
                        [&](const BpeMerge& m) { return is_byte(m.left) || is_byte(m.right); });
  }

  std::uint32_t id_of(std::string_view character, bool first, bool last) const {
    if (file_.prefix.empty() && file_.suffix.empty())
      return character.size() == 1 && static_cast<unsigned char>(character[0]) < 128
                 ? ascii_[static_cast<unsigned char>(character[0])]
                 : file_.vocabulary.find(character).value_or(kNone);
    return file_.vocabulary.find(dressed(character, first, last)).value_or(kNone);
  }

  std::string dressed(std::string_view character, bool first, bool last) const {
    return str_cat(first ? "" : file_.prefix, character, last ? file_.suffix : "");
  }

  /// The ids of the characters. An unknown one is held back until a known one comes (bytes do not count as known), so
  /// that its neighbours can join it.
  void spell(std::string_view word, std::vector<std::uint32_t>& symbols) const {
    bool held = false;
    const auto flush = [&] {
      if (held) symbols.push_back(*file_.unknown);
      held = false;
    };
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t length = character_at(word, at).length;
      const std::string_view character = word.substr(at, length);
      const bool first = at == 0, last = at + length == word.size();
      at += length;
      const std::uint32_t id = id_of(character, first, last);
      if (id != kNone) {
        flush();
        symbols.push_back(id);
        continue;
      }
      if (file_.byte_fallback && fallback_.append(dressed(character, first, last), symbols)) continue;
      if (!file_.unknown) continue;
      if (!file_.fuse_unknown) flush();
      held = true;
    }
    flush();
  }

  const BpeFile& file_;
  const Unreachable& unreachable_;
  BpeMerges merges_;
  FallbackBytes fallback_;
  std::array<std::uint32_t, 128> ascii_ = {};
  bool may_cut_ = false, unknown_are_bytes_ = false;
  Joints joints_;
  std::unique_ptr<WordCache> cache_;
};

/// Reads model.merges, whose entries are "a b" or ["a", "b"].
class MergeReader {
 public:
  explicit MergeReader(const BpeFile& file) : file_(file) {}

  std::vector<BpeMerge> read(const JsonNode& node) {
    node.for_each_element([&](std::size_t, const JsonNode& entry) { read_entry(entry); });
    if (merges_.empty()) node.refuse("is empty: a BPE model without merges cannot join anything");
    drop_repeated();
    return std::move(merges_);
  }

 private:
  void read_entry(const JsonNode& entry) {
    if (entry.is_array()) {
      if (entry.size() != 2) entry.refuse(str_cat("must name two tokens, not ", entry.size()));
      return add(entry, entry.element(0).string(), entry.element(1).string());
    }
    if (!entry.is_string()) entry.refuse("must be \"a b\" or [\"a\", \"b\"]");
    const std::string line = entry.string();
    if (line.starts_with("#version")) return;
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      entry.refuse(str_cat("\"", line,
                           "\" must be two tokens with one space between them; tokens with spaces need the "
                           "spelling [\"a\", \"b\"]"));
    add(entry, line.substr(0, space), line.substr(space + 1));
  }

  void add(const JsonNode& entry, const std::string& left, const std::string& right) {
    if (left.empty()) entry.refuse("the first token is empty");
    if (!right.starts_with(file_.prefix) && right.size() <= file_.prefix.size())
      entry.refuse(str_cat("\"", right, "\" is shorter than the prefix \"", file_.prefix, "\""));
    if (right.size() <= file_.prefix.size()) entry.refuse("the second token is empty");
    const auto id = [&](const std::string& token) {
      const auto found = file_.vocabulary.find(token);
      if (!found) entry.refuse(str_cat("\"", token, "\" is not in the vocabulary"));
      return *found;
    };
    merges_.push_back({id(left), id(right), id(left + right.substr(file_.prefix.size()))});
  }

  /// Of a pair that stands there more than once, the last place counts.
  void drop_repeated() {
    std::vector<std::pair<std::uint64_t, std::size_t>> pairs;
    pairs.reserve(merges_.size());
    for (std::size_t i = 0; i < merges_.size(); ++i)
      pairs.emplace_back(std::uint64_t{merges_[i].left} << 32 | merges_[i].right, i);
    std::sort(pairs.begin(), pairs.end());
    std::vector<bool> dropped(merges_.size());
    for (std::size_t i = 0; i + 1 < pairs.size(); ++i)
      if (pairs[i].first == pairs[i + 1].first) dropped[pairs[i].second] = true;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < merges_.size(); ++i)
      if (!dropped[i]) merges_[kept++] = merges_[i];
    merges_.resize(kept);
  }

  const BpeFile& file_;
  std::vector<BpeMerge> merges_;
};

}  // namespace

BpeFile BpeFile::read(const JsonNode& node) {
  node.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                   "byte_fallback", "ignore_merges", "vocab", "merges"});
  const JsonNode dropout = node["dropout"];
  if (!dropout.is_null() && dropout.number() != 0)
    dropout.refuse("dropout makes ids random and is not supported; set it to null");
  BpeFile file;
  file.vocabulary = Vocabulary::from_object(node.required("vocab"));
  file.prefix = node.string_or("continuing_subword_prefix", "");
  file.suffix = node.string_or("end_of_word_suffix", "");
  file.fuse_unknown = node.boolean_or("fuse_unk", false);
  file.byte_fallback = node.boolean_or("byte_fallback", false);
  file.whole_words_first = node.boolean_or("ignore_merges", false);
  if (const JsonNode unknown = node["unk_token"]; !unknown.is_null()) {
    file.unknown = file.vocabulary.find(unknown.string());
    if (!file.unknown) unknown.refuse(str_cat("\"", unknown.string(), "\" is not in the vocabulary"));
  }
  file.merges = MergeReader(file).read(node.required("merges"));
  return file;
}

std::unique_ptr<WordModel> make_char_bpe(const BpeFile& file, const Unreachable& unreachable) {
  return std::make_unique<CharBpe>(file, unreachable);
}

}  // namespace megatron::tokenizer
