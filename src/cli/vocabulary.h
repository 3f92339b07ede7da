// The size of a run's vocabulary, which its tokenizer's files say.
#pragma once

#include "config/parse.h"
#include "tokenizer/tokenizer.h"

namespace megatron::cli {

/// Sets the vocabulary of the run to the tokenizer's unless --vocab-size or --padded-vocab-size ask for a larger one.
/// Throws ConfigError if they ask for a smaller one.
void take_vocabulary(config::ParsedRun& parsed, const tokenizer::Tokenizer& tokenizer);

/// The same, read from the files that the run names. A file that is not on this machine leaves the vocabulary as it was
/// counted, with a notice; throws ConfigError for one that training would refuse.
void read_vocabulary(config::ParsedRun& parsed);

}  // namespace megatron::cli
