// What HuggingFace's tokenizer.json does to text before it is cut: its `normalizer` section.
// Normalizers are immutable and shared by threads. A byte that is no part of a character passes through all of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/json_node.h"

namespace megatron::tokenizer {

struct NormalizedText {
  std::string text;
  /// The first character stands for the first character of the whole input: nothing in front of it was removed.
  bool at_start = true;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;
  /// True if `text` surely stays as it is; then `apply` can be spared.
  virtual bool leaves(std::string_view text) const { return text.empty(); }
  /// True if characters become the visible spelling of their bytes.
  virtual bool spells_bytes() const { return false; }

  std::string operator()(std::string_view text) const {
    NormalizedText normalized{std::string(text), true};
    apply(normalized);
    return std::move(normalized.text);
  }
};

/// Null for a JSON null. Known types: NFC NFD NFKC NFKD Lowercase Strip StripAccents Replace Prepend BertNormalizer
/// Precompiled Nmt ByteLevel Sequence; everything else is refused by its name and place.
std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node);

/// SentencePiece's table of replacements in base64. Refuses a damaged one.
std::unique_ptr<Normalizer> make_precompiled_normalizer(const JsonNode& charsmap);

}  // namespace megatron::tokenizer
