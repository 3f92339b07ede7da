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
  /// How scores add up. Rounding decides between ways that are equally good.
  enum class Sums {
    in_64_bits,             // HuggingFace's library
    rounded_when_kept,      // sentencepiece 0.1.97: to 32 bits, but compared as they are
    rounded_when_compared,  // sentencepiece 0.2.3: to 32 bits
  };
  Sums sums = Sums::in_64_bits;

  /// Refuses what is damaged, with its place.
  static UnigramFile read(const JsonNode& node);
};

/// `file` must outlive the model. Encoding throws Error for a character without a piece if nothing stands for unknown.
/// Time is linear in the word times the longest piece.
std::unique_ptr<WordModel> make_unigram(const UnigramFile& file, const Unreachable& unreachable);

}  // namespace megatron::tokenizer
