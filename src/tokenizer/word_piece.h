// The WordPiece model (Schuster and Nakajima 2012; BERT): of each word the longest known piece, then the longest known
// continuation, and so on; a word that cannot be cut so becomes the unknown token.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tokenizer/word_model.h"

namespace megatron::tokenizer {

/// The `model` section of a tokenizer.json.
struct WordPieceFile {
  Vocabulary vocabulary;
  std::uint32_t unknown = 0;
  std::string prefix;            // of pieces that continue a word
  std::size_t longest_word = 0;  // in characters; longer ones are unknown

  /// Refuses what is damaged, with its place.
  static WordPieceFile read(const JsonNode& node);
};

/// Time is linear in the word times the longest piece.
std::unique_ptr<WordModel> make_word_piece(const WordPieceFile& file, const Unreachable& unreachable);

}  // namespace megatron::tokenizer
