// A tokenizer of byte-pair encoding over bytes with markers: GPT2BPETokenizer and TikTokenizer, which differ in their
// files. Any bytes encode, and decoding gives the same bytes back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/byte_bpe.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"

namespace megatron::tokenizer {

/// vocab.json and merges.txt in GPT-2's spelling. <|endoftext|>, where the vocabulary has it, ends a document;
/// --tokenizer-special-tokens are markers: those that the vocabulary lacks get the ids behind it.
std::unique_ptr<Tokenizer> make_gpt2_bpe(const TokenizerOptions& options);

/// --tokenizer-model FILE is a list of "base64 rank" (markers after the ranks, those of OpenAI's file of that size or
/// --tokenizer-special-tokens, else <|endoftext|>) or Megatron-LM's JSON list of {rank, token_bytes} (markers first).
std::unique_ptr<Tokenizer> make_tiktoken(const TokenizerOptions& options);

class ByteBpeTokenizer final : public Tokenizer {
 public:
  struct Parts {
    std::string type;
    ByteBpeConfig bpe;
    std::string pattern;  // regular expression that cuts texts
    std::vector<std::pair<std::string, std::int64_t>> special;
    std::optional<std::int64_t> bos, eod;
    std::int64_t pad = -1;
    std::string identity;
  };
  explicit ByteBpeTokenizer(Parts parts);

  std::string_view type() const override { return type_; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int64_t> bos() const override { return bos_; }
  std::optional<std::int64_t> eod() const override { return eod_; }
  std::int64_t pad() const override { return pad_; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<std::int64_t>& ids) const override;
  void encode_special(std::string_view text, std::vector<std::int64_t>& ids) const override;
  /// Ids that stand for nothing become no bytes.
  std::string decode(std::span<const std::int64_t> ids, std::string_view eod_text = "") const override;
  std::string piece(std::int64_t id) const override;
  std::string identity_json() const override { return identity_; }

 private:
  std::string_view bytes_of(std::int64_t id) const;

  std::string type_;
  ByteBpe bpe_;
  std::unique_ptr<Splitter> splitter_;
  SpecialTokens special_;
  std::optional<std::int64_t> bos_, eod_;
  std::int64_t pad_ = -1;
  std::int64_t vocab_size_ = 0;
  std::string identity_;
};

}  // namespace megatron::tokenizer
