// What turns one word of a HuggingFace tokenizer into ids: the interface of BPE over characters, Unigram and WordPiece.
// Immutable and shared by threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/json_node.h"
#include "tokenizer/vocabulary.h"

namespace megatron::tokenizer {

class WordModel {
 public:
  virtual ~WordModel() = default;
  /// Appends the ids of `word`, which is not empty.
  virtual void encode(std::string_view word, std::vector<std::int64_t>& ids) const = 0;
};

/// Ids that no text may become, because they are control tokens; indexed by id.
using Unreachable = std::vector<bool>;

/// The 256 ids of <0x00> … <0xFF>; unset where one is missing.
class FallbackBytes {
 public:
  FallbackBytes() = default;
  explicit FallbackBytes(const Vocabulary& vocabulary);
  /// Appends one id per byte; false (and nothing appended) if a byte has none.
  template <typename Id>
  bool append(std::string_view bytes, std::vector<Id>& ids) const {
    for (const char c : bytes)
      if (!ids_[static_cast<unsigned char>(c)]) return false;
    for (const char c : bytes) ids.push_back(static_cast<Id>(*ids_[static_cast<unsigned char>(c)]));
    return true;
  }

 private:
  std::array<std::optional<std::uint32_t>, 256> ids_ = {};
};

}  // namespace megatron::tokenizer
