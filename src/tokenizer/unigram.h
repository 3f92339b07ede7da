// The Unigram model (Kudo 2018): the cut of a word into pieces of the largest sum of scores, found by Viterbi.
#pragma once

#include <memory>
#include <vector>

#include "tokenizer/word_model.h"

namespace megatron::tokenizer {

/// The `model` section of a tokenizer.json: {"vocab": [[piece, score], ...], "unk_id", "byte_fallback"}.
struct UnigramFile {
  Vocabulary vocabulary;
  std::vector<double> scores;
  std::optional<std::uint32_t> unknown;
  bool byte_fallback = false;
  /// Sums of scores are rounded to 32 bits, as SentencePiece's library does; that of HuggingFace keeps 64.
  bool single_precision = false;

  /// Refuses what is damaged, with its place.
  static UnigramFile read(const JsonNode& node);
};

/// `file` must outlive the model. Encoding throws Error for a character without a piece if nothing stands for unknown.
/// Time is linear in the word times the longest piece.
std::unique_ptr<WordModel> make_unigram(const UnigramFile& file, const Unreachable& unreachable);

}  // namespace megatron::tokenizer
