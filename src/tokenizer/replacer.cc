#include "tokenizer/replacer.h"

#include "base/check.h"

namespace megatron::tokenizer {

Pattern Pattern::from(const JsonNode& node) {
  if (node.is_string()) {  // the oldest spelling
    Pattern pattern{node.string(), ""};
    if (pattern.literal.empty()) node.refuse("must not be empty");
    return pattern;
  }
  node.allow_only({"String", "Regex"});
  if (node.size() != 1) node.refuse("must hold either \"String\" or \"Regex\"");
  Pattern pattern{node.string_or("String", ""), node.string_or("Regex", "")};
  if (pattern.literal.empty() && pattern.regex.empty()) node.refuse("must not be empty");
  return pattern;
}

std::unique_ptr<Splitter> Pattern::splitter(const JsonNode& node, SplitBehavior behavior, bool invert) const {
  if (!literal.empty()) return make_literal_splitter(literal, behavior, invert);
  try {
    return make_splitter(regex, behavior, invert);
  } catch (const ConfigError& error) {
    node.refuse(error.what());
  }
}

Replacer::Replacer(const JsonNode& pattern, std::string content)
    : pattern_(Pattern::from(pattern)), content_(std::move(content)) {
  if (!pattern_.literal.empty()) return;
  every_ = pattern_.splitter(pattern, SplitBehavior::isolated, false);
  between_ = pattern_.splitter(pattern, SplitBehavior::removed, false);
}

std::string Replacer::replace(std::string_view text, bool* begins_in_match) const {
  std::string out;
  if (!pattern_.literal.empty()) {
    std::size_t from = 0;
    for (std::size_t at; (at = text.find(pattern_.literal, from)) != std::string_view::npos;
         from = at + pattern_.literal.size()) {
      out += text.substr(from, at - from);
      out += content_;
      if (begins_in_match != nullptr && at == 0 && content_.empty()) *begins_in_match = true;
    }
    return out += text.substr(from);
  }
  // A piece is a match if it is missing among those that lie between matches.
  const std::vector<Piece> between = between_->split(text);
  std::size_t next = 0;
  for (const Piece& piece : every_->split(text)) {
    if (next < between.size() && between[next].begin == piece.begin) {
      out += text.substr(piece.begin, piece.end - piece.begin);
      ++next;
    } else {
      out += content_;
      if (begins_in_match != nullptr && piece.begin == 0 && content_.empty()) *begins_in_match = true;
    }
  }
  return out;
}

}  // namespace megatron::tokenizer
