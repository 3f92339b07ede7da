// Learns the merges of a byte-level BPE vocabulary from counted words (Sennrich et al., arXiv 1508.07909).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace megatron::tokenizer {

/// How often each piece of text, as the pre-tokenizer cut it, occurs. Pieces are bytes.
class WordCounts {
 public:
  void add(std::string_view word, std::int64_t count = 1);
  void add(const WordCounts& other);

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  using Map = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;
  const Map& counts() const { return counts_; }

 private:
  Map counts_;
};

struct BpeTrainerOptions {
  std::int64_t vocab_size = 30000;               // special tokens and the 256 bytes included; at least their number
  std::int64_t min_frequency = 0;                // of a pair
  std::vector<std::string> special_tokens = {};  // the first ids, in this order
};

struct TrainedBpe {
  /// Text of each id as vocab.json holds it: special tokens, then the bytes and what merges made of them, a byte
  /// written as its character of GPT-2's alphabet (bytes_to_visible()).
  std::vector<std::string> tokens;
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // ids, most frequent first
};

/// Merges the most frequent pair of neighbours again and again, of equally frequent ones the one with the lowest ids,
/// until the vocabulary is full or no pair occurs min_frequency times. Two merges may make the same token: it keeps one
/// id. Ids and merges are those of Hugging Face's BpeTrainer with the byte-level alphabet; they depend on nothing but
/// the counts. Throws ConfigError for a vocabulary that is too small, and specials that are empty or named twice.
TrainedBpe train_bpe(const WordCounts& words, const BpeTrainerOptions& options);

}  // namespace megatron::tokenizer
