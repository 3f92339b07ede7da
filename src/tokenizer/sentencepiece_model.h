// Encoding with a SentencePiece model as its library does, in time that grows with n log n at most whatever the text,
// and with short parts of BPE remembered. Immutable for its users and shared by threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/char_bpe.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/unigram.h"

namespace megatron::tokenizer {

class SentencePieceModel {
 public:
  /// Null for a model that takes what only the library knows: another kind than BPE and Unigram, pieces that are
  /// defined by users or unused, spaces behind words, characters that only stand inside of pieces.
  /// `sums`: those of the library's version, for Unigram.
  static std::unique_ptr<SentencePieceModel> make(const SentencePieceFile& file, UnigramFile::Sums sums);

  void encode(std::string_view text, std::vector<std::int64_t>& ids) const;

 private:
  struct Prefix {
    std::size_t length = 0;  // of the text
    std::string_view normal;
  };
  SentencePieceModel() = default;
  Prefix prefix_of(std::string_view text) const;
  std::string normalized(std::string_view text) const;

  Charsmap charsmap_;
  bool has_charsmap_ = false, add_dummy_prefix_ = true, remove_extra_spaces_ = true;
  BpeFile bpe_;  // of these two the one that the file holds
  UnigramFile unigram_;
  Unreachable unreachable_;  // all but normal pieces
  std::unique_ptr<WordModel> model_;
};

}  // namespace megatron::tokenizer
