// Text ↔ token ids: the interface of every tokenizer, and the factory that knows them by Megatron-LM's names.
// Tokenizers are immutable after construction: all ranks of a process share one. Text is bytes; nothing is normalised,
// and literal text never turns into a control token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::tokenizer {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The name that `create_tokenizer` takes.
  virtual std::string_view type() const = 0;
  /// Number of ids: every id is in [0, vocab_size).
  virtual std::int64_t vocab_size() const = 0;
  /// Id of "end of document", if this tokenizer has one.
  virtual std::optional<std::int64_t> eod() const = 0;
  /// Id of the padding token; −1: none.
  virtual std::int64_t pad() const = 0;

  /// Appends the ids of `text` to `ids`. Linear in time. Throws Error with a one-line reason for text it cannot take;
  /// `ids` may then hold a part.
  virtual void encode(std::string_view text, std::vector<std::int64_t>& ids) const = 0;
  /// The bytes of `ids`; each end of document becomes `eod_text`. Throws Error for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int64_t> ids, std::string_view eod_text = "") const = 0;

  /// One-line JSON from which `tokenizer_from_identity` makes an equal tokenizer; equal text ⇔ equal ids.
  virtual std::string identity_json() const = 0;

  std::vector<std::int64_t> encode(std::string_view text) const {
    std::vector<std::int64_t> ids;
    encode(text, ids);
    return ids;
  }
};

struct TokenizerOptions {
  std::optional<std::int64_t> vocab_size = {};   // --vocab-size (NullTokenizer)
  std::optional<std::int64_t> null_eod_id = {};  // --null-tokenizer-eod-id; unset: vocab_size − 1; negative: none
  std::optional<std::int64_t> null_pad_id = {};  // --null-tokenizer-pad-id; unset: −1 (none)
};

/// Makes the tokenizer that `--tokenizer-type` names: "ByteLevel" (ids 0–255 are bytes, 256 ends a document) or
/// "NullTokenizer" (text is whitespace-separated ids). Throws ConfigError for the types of Megatron-LM that are not
/// built in this version, for unknown names (with the nearest known one) and for options that do not fit.
std::unique_ptr<Tokenizer> create_tokenizer(const std::string& type, const TokenizerOptions& options = {});

/// The tokenizer that wrote `identity`. Throws ConfigError when the text is not such an identity.
std::unique_ptr<Tokenizer> tokenizer_from_identity(std::string_view identity);

}  // namespace megatron::tokenizer
