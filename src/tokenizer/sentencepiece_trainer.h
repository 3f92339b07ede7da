// Learns a SentencePiece model (Kudo & Richardson, arXiv 1808.06226) through the library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace megatron::tokenizer {

struct SentencePieceTrainerOptions {
  std::string model_type = "unigram";       // unigram, bpe, word or char
  std::int64_t vocab_size = 0;              // pieces in all: <unk>, <s>, </s>, special ones, bytes, learned ones
  std::vector<std::string> special_tokens;  // control symbols: pieces of their own that no text becomes
  double character_coverage = 0.9995;       // share of the text's characters that get a piece of their own
  bool byte_fallback = false;               // a character without a piece becomes pieces of its bytes
};

/// The bytes of a .model file, learned from the lines of every text that `next_text` fills in until it returns false;
/// they are kept in memory until the end. A line of more bytes than the library reads in one piece (4192) is cut at
/// characters. The result depends on the texts and the options only. Throws ConfigError with the library's reason, of a
/// vocabulary larger than the text allows with the largest possible one; what `next_text` throws passes through.
std::string train_sentencepiece(const SentencePieceTrainerOptions& options,
                                const std::function<bool(std::string&)>& next_text);

}  // namespace megatron::tokenizer
