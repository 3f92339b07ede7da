// How HuggingFace's tokenizer.json turns tokens back into text: its `decoder` section. Immutable, shared by threads.
// Bytes stay bytes: what is no UTF-8 is not replaced by U+FFFD.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_node.h"

namespace megatron::tokenizer {

struct DecodedToken {
  std::string text;
  bool literal = false;  // an added token: its text is no spelling of bytes
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes the tokens of one text; their number may change.
  virtual void apply(std::vector<DecodedToken>& tokens) const = 0;
  /// True if the tokens become one.
  virtual bool joins() const { return false; }
  /// False if a later token may change what earlier ones became, other than by cutting at the ends of the text.
  /// `joined`: they are one token already.
  virtual bool streams(bool joined) const { return !joined; }
  /// What tokens may only hold at their end for `streams` to be true; empty: no such text.
  virtual std::string_view end_mark() const { return {}; }
};

/// For a JSON null: tokens are joined with spaces. Known types: ByteLevel WordPiece Metaspace ByteFallback Fuse Strip
/// Replace BPEDecoder CTC Sequence; everything else is refused by its name and place.
std::unique_ptr<Decoder> make_decoder(const JsonNode& node);

}  // namespace megatron::tokenizer
