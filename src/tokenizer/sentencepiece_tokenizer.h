// SentencePiece models (.model): Megatron-LM's SentencePieceTokenizer, GPTSentencePieceTokenizer and Llama2Tokenizer.
// Pieces and ids are those of the sentencepiece library, which encodes itself where sentencepiece_model.h cannot or, on
// samples at loading, gives other ids.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace megatron::tokenizer {

/// Reads `options.tokenizer_model`. Beginning, end and padding are the ids that the model names.
/// sentencepiece_legacy: --tokenizer-special-tokens and then <extra_id_0> … (vocab_extra_ids) become markers: pieces
/// that the model has keep their id, others get the ids behind the model's.
/// sentencepiece_keep_extra_whitespaces: runs of spaces and those at the ends survive models that squeeze them, by
/// Megatron-LM's detour over a character that no text has.
/// Throws IoError for files that cannot be read and ConfigError for damaged ones, with the offset.
/// Markers and the model's control symbols in text are text unless `encode_special` is called. Bytes that are no UTF-8
/// become U+FFFD, each one of its own.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& type, const TokenizerOptions& options);

}  // namespace megatron::tokenizer
