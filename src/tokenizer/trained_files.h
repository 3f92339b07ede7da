// A trained vocabulary as the files that tokenizers read: tokenizer.json, vocab.json and merges.txt.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/bpe_trainer.h"

namespace megatron::tokenizer {

/// Hugging Face's tokenizer.json: byte-level BPE, text cut by `pattern` (the regular expression; GPT-2's is written as
/// ByteLevel's own), the first `num_special` tokens as special added tokens, no marks around a text.
std::string tokenizer_json(const TrainedBpe& bpe, std::size_t num_special, std::string_view pattern);
/// GPT-2's vocab.json: token → id.
std::string vocab_json(const TrainedBpe& bpe);
/// GPT-2's merges.txt: a line with the version, then one merge per line.
std::string merges_txt(const TrainedBpe& bpe);

}  // namespace megatron::tokenizer
