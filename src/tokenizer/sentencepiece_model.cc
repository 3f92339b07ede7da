#include "tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

using Type = SentencePieceFile::Type;

constexpr std::string_view kWordMark = "\xe2\x96\x81";
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD, for a byte that is no text

bool is_one_character(std::string_view text) { return !text.empty() && character_at(text, 0).length == text.size(); }

/// True if normal pieces are made of normal pieces of one character, and nothing but these is one character.
bool has_its_characters(const SentencePieceFile& file, const Vocabulary& vocabulary) {
  const auto is_normal = [&](std::string_view text) {
    const auto id = vocabulary.find(text);
    return id && file.pieces[*id].type == Type::normal;
  };
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const std::string& text = file.pieces[id].text;
    if (vocabulary.find(text) != id) return false;  // two pieces of one text
    if (file.pieces[id].type != Type::normal) {
      if (is_one_character(text)) return false;
      continue;
    }
    for (std::size_t at = 0; at < text.size();) {
      const Character c = character_at(text, at);
      if (c.code >= kInvalidByte || !is_normal(std::string_view(text).substr(at, c.length))) return false;
      at += c.length;
    }
  }
  return true;
}

/// The place of each piece's score among all scores, from the best.
std::vector<std::uint32_t> ranks_of(const SentencePieceFile& file) {
  std::vector<float> scores;
  for (const auto& piece : file.pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  std::vector<std::uint32_t> ranks;
  for (const auto& piece : file.pieces)
    ranks.push_back(static_cast<std::uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) - scores.begin()));
  return ranks;
}

bool has_numbers(const SentencePieceFile& file) {
  return std::none_of(file.pieces.begin(), file.pieces.end(),
                      [](const auto& piece) { return std::isnan(piece.score); });
}

bool has_all_bytes(const SentencePieceFile& file, const Vocabulary& vocabulary) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t b = 0; b < 256; ++b) {
    const auto id = vocabulary.find(str_cat("<0x", kHex[b >> 4], kHex[b & 15], ">"));
    if (!id || file.pieces[*id].type != Type::byte) return false;
  }
  return true;
}

/// All ways to put a piece together from two others.
std::vector<BpeMerge> merges_of(const SentencePieceFile& file, const Vocabulary& vocabulary) {
  std::vector<BpeMerge> merges;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].type != Type::normal) continue;
    const std::string_view text = file.pieces[id].text;
    for (std::size_t cut = character_at(text, 0).length; cut < text.size(); cut += character_at(text, cut).length) {
      const auto left = vocabulary.find(text.substr(0, cut)), right = vocabulary.find(text.substr(cut));
      if (left && right && file.pieces[*left].type == Type::normal && file.pieces[*right].type == Type::normal)
        merges.push_back({*left, *right, static_cast<std::uint32_t>(id)});
    }
  }
  return merges;
}

}  // namespace

std::unique_ptr<SentencePieceModel> SentencePieceModel::make(const SentencePieceFile& file, UnigramFile::Sums sums) {
  using Kind = SentencePieceFile::Model;
  if ((file.model != Kind::bpe && file.model != Kind::unigram) || file.space_is_suffix || !file.escape_spaces)
    return nullptr;
  Vocabulary vocabulary;
  std::vector<std::uint32_t> unknown;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file.pieces[id];
    if (piece.type == Type::user_defined || piece.type == Type::unused || piece.text.empty()) return nullptr;
    if (piece.type == Type::unknown) unknown.push_back(static_cast<std::uint32_t>(id));
    vocabulary.add(piece.text, static_cast<std::int64_t>(id));
  }
  if (unknown.size() != 1 || !has_numbers(file) || !has_its_characters(file, vocabulary)) return nullptr;
  if (file.byte_fallback && !has_all_bytes(file, vocabulary)) return nullptr;

  std::unique_ptr<SentencePieceModel> made(new SentencePieceModel);
  made->add_dummy_prefix_ = file.add_dummy_prefix;
  made->remove_extra_spaces_ = file.remove_extra_spaces;
  if (!file.charsmap.empty()) {
    std::string why;
    auto charsmap = Charsmap::read(file.charsmap, why);
    if (!charsmap) return nullptr;
    made->charsmap_ = *std::move(charsmap);
    made->has_charsmap_ = true;
  }
  for (const auto& piece : file.pieces) made->unreachable_.push_back(piece.type != Type::normal);
  if (file.model == Kind::bpe) {
    BpeFile& bpe = made->bpe_;
    bpe.merges = merges_of(file, vocabulary);
    const std::vector<std::uint32_t> ranks = ranks_of(file);
    for (const BpeMerge& merge : bpe.merges) bpe.ranks.push_back(ranks[merge.merged]);
    bpe.vocabulary = std::move(vocabulary);
    bpe.unknown = unknown[0];
    bpe.fuse_unknown = true;
    bpe.byte_fallback = file.byte_fallback;
    made->model_ = make_char_bpe(bpe, made->unreachable_);
  } else {
    UnigramFile& unigram = made->unigram_;
    for (const auto& piece : file.pieces)  // the others never are a way to go
      unigram.scores.push_back(piece.type == Type::normal ? double{piece.score} : 0.0);
    unigram.vocabulary = std::move(vocabulary);
    unigram.unknown = unknown[0];
    unigram.byte_fallback = file.byte_fallback;
    unigram.sums = sums;
    made->model_ = make_unigram(unigram, made->unreachable_);
  }
  return made;
}

SentencePieceModel::Prefix SentencePieceModel::prefix_of(std::string_view text) const {
  if (has_charsmap_)
    if (const auto match = charsmap_.longest(text)) return {match->length, match->replacement};
  const Character c = character_at(text, 0);
  if (c.code >= kInvalidByte) return {1, kReplacement};
  return {c.length, text.substr(0, c.length)};
}

std::string SentencePieceModel::normalized(std::string_view text) const {
  std::string out;
  if (remove_extra_spaces_) {
    while (!text.empty()) {
      const Prefix prefix = prefix_of(text);
      if (prefix.normal != " ") break;
      text.remove_prefix(prefix.length);
    }
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2 + 8);
  if (add_dummy_prefix_) out += kWordMark;
  bool after_space = remove_extra_spaces_;
  while (!text.empty()) {
    Prefix prefix = prefix_of(text);
    text.remove_prefix(prefix.length);
    while (after_space && prefix.normal.starts_with(' ')) prefix.normal.remove_prefix(1);
    if (!prefix.normal.empty()) after_space = remove_extra_spaces_ && prefix.normal.ends_with(' ');
    for (const char c : prefix.normal) {
      if (c == ' ')
        out += kWordMark;
      else
        out += c;
    }
  }
  while (remove_extra_spaces_ && out.ends_with(kWordMark)) out.resize(out.size() - kWordMark.size());
  return out;
}

void SentencePieceModel::encode(std::string_view text, std::vector<std::int64_t>& ids) const {
  const std::string normal = normalized(text);
  if (!normal.empty()) model_->encode(normal, ids);
}

}  // namespace megatron::tokenizer
