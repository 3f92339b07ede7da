// HuggingFace tokenizers as their tokenizer.json describes them: added tokens, normalizer, pre-tokenizer, model,
// post-processor and decoder, each refused by its name and place if this version does not know it.
// Text that is no UTF-8 is taken byte by byte: such a byte passes through normalizers and belongs to no class.
#pragma once

#include <memory>

#include "tokenizer/tokenizer.h"

namespace megatron::tokenizer {

/// Reads `options.tokenizer_model`: a tokenizer.json, or a folder that holds one. The ends of a text and the padding
/// token are those that tokenizer_config.json or special_tokens_map.json beside it name, else added tokens of the usual
/// names. Throws IoError for files that cannot be read and ConfigError "file: place: reason" for everything in them
/// that is damaged or not known.
/// Encoding equals the library `tokenizers`, without the ids that its post-processor adds (those are `model_ends`);
/// control tokens in the text are text unless `encode_special` is called. Decoding keeps bytes that are no UTF-8.
std::unique_ptr<Tokenizer> make_huggingface_tokenizer(const TokenizerOptions& options);

}  // namespace megatron::tokenizer
