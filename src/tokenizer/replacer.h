// Replacing every match of a literal or a regular expression in text by fixed text, as HuggingFace's `Replace` does.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/json_node.h"
#include "tokenizer/splitter.h"

namespace megatron::tokenizer {

/// What a JSON "pattern" says: {"String": ...} or {"Regex": ...}; `literal` empty: a regular expression.
struct Pattern {
  std::string literal, regex;

  /// Refuses anything else and empty patterns, with their place.
  static Pattern from(const JsonNode& node);
  /// Throws ConfigError with the place if the regular expression is not understood.
  std::unique_ptr<Splitter> splitter(const JsonNode& node, SplitBehavior behavior, bool invert) const;
};

class Replacer {
 public:
  Replacer(const JsonNode& pattern, std::string content);

  /// The text with its matches replaced. `begins_in_match`: the text began with a match that became nothing.
  std::string replace(std::string_view text, bool* begins_in_match = nullptr) const;

 private:
  Pattern pattern_;
  std::string content_;
  std::unique_ptr<Splitter> every_;    // all pieces, each match one of its own
  std::unique_ptr<Splitter> between_;  // the pieces that are no match
};

}  // namespace megatron::tokenizer
