// The tokenizer options of commands that are no run, under Megatron-LM's names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/argument_parser.h"
#include "tokenizer/tokenizer.h"

namespace megatron::cli {

struct TokenizerArguments {
  std::string type;
  tokenizer::TokenizerOptions options;
  bool parse_special = false;
  std::string text_ends = "none";

  /// Adds their rows; `*this` must stay where it is.
  void add_to(ArgumentParser& parser);
  /// Makes the tokenizer. Mistakes go to `errors` and give null; IoError for files that cannot be read is thrown.
  std::unique_ptr<tokenizer::Tokenizer> create(const ArgumentParser& parser, std::vector<std::string>& errors) const;
  /// What they say about encoding; after `create` found no mistake.
  tokenizer::EncodeOptions encode_options() const;
};

/// Their part of a help text; ends without a newline.
std::string tokenizer_arguments_help();

}  // namespace megatron::cli
