#include "tokenizer/word_piece.h"

#include "base/check.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/unicode_text.h"
#include "tokenizer/word_cache.h"

namespace megatron::tokenizer {
namespace {

class WordPiece final : public WordModel {
 public:
  WordPiece(const WordPieceFile& file, const Unreachable& unreachable)
      : unknown_(file.unknown), longest_word_(file.longest_word) {
    for (std::size_t id = 0; id < file.vocabulary.size(); ++id) {
      const std::string_view piece = file.vocabulary.text(id);
      if (!piece.empty() && !(id < unreachable.size() && unreachable[id]))
        trie_.add(piece, static_cast<std::uint32_t>(id));
    }
    continued_ = trie_.walk(file.prefix);
  }

  void encode(std::string_view word, std::vector<std::int64_t>& ids) const override {
    cache_->append(word, 0, ids, [this](std::string_view w, auto& to) { encode_new(w, to); });
  }

 private:
  void encode_new(std::string_view word, std::vector<std::int64_t>& ids) const {
    const std::size_t before = ids.size();
    std::size_t characters = 0;
    for (std::size_t at = 0; at < word.size() && characters <= longest_word_; ++characters)
      at += character_at(word, at).length;
    bool known = characters <= longest_word_;
    for (std::size_t at = 0; known && at < word.size();) {
      const std::size_t length = longest_piece(word, at, ids);
      known = length > 0;
      at += length;
    }
    if (known) return;
    ids.resize(before);
    ids.push_back(unknown_);
  }

  /// Appends the id of the longest piece at `at` and returns its bytes; 0: there is none.
  std::size_t longest_piece(std::string_view word, std::size_t at, std::vector<std::int64_t>& ids) const {
    std::uint32_t node = at == 0 ? ByteTrie::kRoot : continued_;
    std::uint32_t found = ByteTrie::kNone;
    std::size_t length = 0;
    for (std::size_t end = at; node != ByteTrie::kNone && end < word.size();) {
      node = trie_.step(node, static_cast<unsigned char>(word[end++]));
      if (node == ByteTrie::kNone || trie_.value(node) == ByteTrie::kNone) continue;
      found = trie_.value(node);
      length = end - at;
    }
    if (length > 0) ids.push_back(found);
    return length;
  }

  std::uint32_t unknown_;
  std::size_t longest_word_;
  ByteTrie trie_;
  std::uint32_t continued_ = ByteTrie::kNone;
  std::unique_ptr<WordCache> cache_ = std::make_unique<WordCache>();
};

}  // namespace

WordPieceFile WordPieceFile::read(const JsonNode& node) {
  node.allow_only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  WordPieceFile file;
  file.vocabulary = Vocabulary::from_object(node.required("vocab"));
  const std::string unknown = node.string_or("unk_token", "[UNK]");
  const auto id = file.vocabulary.find(unknown);
  if (!id) node["unk_token"].refuse(str_cat("\"", unknown, "\" is not in the vocabulary"));
  file.unknown = *id;
  file.prefix = node.string_or("continuing_subword_prefix", "##");
  const std::int64_t longest = node.integer_or("max_input_chars_per_word", 100);
  if (longest < 0) node["max_input_chars_per_word"].refuse("must not be negative");
  file.longest_word = static_cast<std::size_t>(longest);
  return file;
}

std::unique_ptr<WordModel> make_word_piece(const WordPieceFile& file, const Unreachable& unreachable) {
  return std::make_unique<WordPiece>(file, unreachable);
}

}  // namespace megatron::tokenizer
