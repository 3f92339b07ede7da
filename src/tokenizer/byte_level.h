// The byte-level tokenizer: ids 0–255 are the bytes themselves, 256 ends a document. Nothing is ever unknown.
#pragma once

#include "tokenizer/tokenizer.h"

namespace megatron::tokenizer {

class ByteLevel final : public Tokenizer {
 public:
  static constexpr std::int64_t kEod = 256;
  static constexpr std::int64_t kVocabSize = 257;

  std::string_view type() const override { return "ByteLevel"; }
  std::int64_t vocab_size() const override { return kVocabSize; }
  std::optional<std::int64_t> eod() const override { return kEod; }
  std::int64_t pad() const override { return -1; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<std::int64_t>& ids) const override;
  std::string decode(std::span<const std::int64_t> ids, std::string_view eod_text = "") const override;
  std::string identity_json() const override;
};

}  // namespace megatron::tokenizer
