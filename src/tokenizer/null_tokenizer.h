// Megatron-LM's NullTokenizer: the text is whitespace-separated token ids.
#pragma once

#include "tokenizer/tokenizer.h"

namespace megatron::tokenizer {

class NullTokenizer final : public Tokenizer {
 public:
  /// Throws ConfigError when `eod` lies outside the vocabulary. `eod` unset: vocab_size − 1; negative: none.
  NullTokenizer(std::int64_t vocab_size, std::optional<std::int64_t> eod, std::optional<std::int64_t> pad);

  std::string_view type() const override { return "NullTokenizer"; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int64_t> eod() const override { return eod_; }
  std::int64_t pad() const override { return pad_; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<std::int64_t>& ids) const override;
  /// The ids in decimal, separated by single spaces.
  std::string decode(std::span<const std::int64_t> ids, std::string_view eod_text = "") const override;
  std::string identity_json() const override;

 private:
  std::int64_t vocab_size_;
  std::optional<std::int64_t> eod_;
  std::int64_t pad_;
};

}  // namespace megatron::tokenizer
