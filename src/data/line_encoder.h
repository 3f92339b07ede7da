// Blocks of lines to token ids in the form of an indexed data set: the work of one preprocessing thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/indexed_dataset.h"
#include "tokenizer/tokenizer.h"

namespace megatron::data {

/// The documents of one block under one key.
struct EncodedKey {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> sizes;  // bytes of each document; 0: empty
};

struct SkippedLine {
  std::int64_t line = 0;  // within the block, from 1
  const char* kind = "";
  std::string reason;  // empty beyond the first kKeptReasons
};
constexpr std::size_t kKeptReasons = 20;

struct EncodedBlock {
  std::size_t file = 0;
  std::int64_t end_offset = 0;
  std::int64_t lines = 0, documents = 0, text_bytes = 0;
  std::int64_t input_done = 0;  // bytes on disk that had been taken when the block was read
  std::vector<EncodedKey> keys;
  std::vector<SkippedLine> skipped;  // all bad lines, or (strict) the first, after which nothing was encoded
};

struct LineEncoderConfig {
  std::vector<std::string> keys;
  bool append_eod = false;
  bool lenient = false;
  tokenizer::EncodeOptions encode;
  TokenType type = TokenType::uint16;
};

class LineEncoder {
 public:
  /// `tokenizer` must outlive it.
  LineEncoder(const LineEncoderConfig& config, const tokenizer::Tokenizer& tokenizer)
      : config_(config), tokenizer_(tokenizer), json_(config.keys) {}

  /// Overwrites `out`, whose memory is used again.
  void encode(const LineBlock& block, EncodedBlock& out);

 private:
  bool encode_line(CorpusKind kind, std::string_view line, EncodedBlock& out);
  void add(std::string_view text, EncodedKey& key);

  LineEncoderConfig config_;
  const tokenizer::Tokenizer& tokenizer_;
  JsonStrings json_;
  std::vector<std::string> texts_;
  std::vector<std::int64_t> ids_;
};

}  // namespace megatron::data
