#include "cli/vocabulary.h"

#include <algorithm>

#include "base/check.h"
#include "config/derive.h"
#include "train/assemble.h"

namespace megatron::cli {

void take_vocabulary(config::ParsedRun& parsed, const tokenizer::Tokenizer& tokenizer) {
  spec::ModelSpec& model = parsed.spec.model;
  const auto given = [&](const char* name) {
    return std::find(parsed.given.begin(), parsed.given.end(), name) != parsed.given.end();
  };
  const auto require = [&](const char* name, std::int64_t value) {
    if (value < tokenizer.vocab_size())
      throw ConfigError(str_cat(name, " ", value, ": the tokenizer ", tokenizer.type(), " has ", tokenizer.vocab_size(),
                                " ids; leave the option out or give at least that number"));
  };
  if (given("--padded-vocab-size")) require("--padded-vocab-size", model.padded_vocab_size);
  if (given("--vocab-size")) return require("--vocab-size", model.vocab_size);
  if (given("--padded-vocab-size"))
    model.vocab_size = tokenizer.vocab_size();
  else
    config::set_vocabulary(model, tokenizer.vocab_size(), parsed.spec.parallel.tensor_parallel);
}

void read_vocabulary(config::ParsedRun& parsed) {
  try {
    if (const auto tokenizer = train::create_tokenizer(parsed.spec)) take_vocabulary(parsed, *tokenizer);
  } catch (const IoError& error) {
    parsed.notices.push_back(str_cat("the vocabulary is counted with ", parsed.spec.model.vocab_size,
                                     " ids, not the tokenizer's: ", error.what()));
  }
}

}  // namespace megatron::cli
