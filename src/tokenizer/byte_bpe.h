// Byte-pair encoding of byte strings: a vocabulary of byte strings, merges, and the fast path from text to ids that
// GPT-2's, tiktoken's and HuggingFace's byte-level tokenizers share.
// Immutable for its users and shared by threads; short words that were seen are remembered (at most a few MiB).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/splitter.h"

namespace megatron::tokenizer {

class Joints;
class WordCache;

/// Byte strings by id, and ids by byte string.
class BytesIndex {
 public:
  /// Empty strings are not found. Throws ConfigError if two ids stand for the same bytes.
  explicit BytesIndex(const std::vector<std::string>& strings);

  std::size_t size() const { return offsets_.size() - 1; }
  std::string_view bytes(std::size_t id) const {
    return std::string_view(text_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  std::optional<std::uint32_t> find(std::string_view bytes) const;

 private:
  std::string text_;  // all strings, one after the other
  std::vector<std::size_t> offsets_;
  std::vector<std::uint32_t> slots_;  // hash table of id + 1; 0: free
};

struct ByteBpeConfig {
  std::vector<std::string> vocabulary;  // bytes of each id; empty: the id stands for no bytes
  std::vector<BpeMerge> merges;
  BpeMerges::Rank rank = BpeMerges::Rank::place;
  /// A piece that is in the vocabulary becomes its id without merging (tiktoken; HuggingFace's ignore_merges).
  bool whole_pieces_first = false;
  /// Id of bytes that the vocabulary does not have; unset: they vanish, as in HuggingFace's BPE without unk_token.
  std::optional<std::uint32_t> unknown = {};
};

class ByteBpe {
 public:
  /// Throws ConfigError if two ids stand for the same bytes.
  explicit ByteBpe(ByteBpeConfig config);
  ~ByteBpe();
  ByteBpe(ByteBpe&&) noexcept;

  /// Appends the ids of `text`, cut by `splitter`.
  void encode(std::string_view text, const Splitter& splitter, std::vector<std::int64_t>& ids) const;
  /// Appends the ids of one piece.
  void encode_piece(std::string_view piece, std::vector<std::int64_t>& ids) const;

  /// Number of ids of the vocabulary, those without bytes included.
  std::size_t size() const { return vocabulary_.size(); }
  /// The bytes of an id below size().
  std::string_view bytes(std::size_t id) const { return vocabulary_.bytes(id); }
  /// The id that stands for exactly these bytes.
  std::optional<std::uint32_t> id_of(std::string_view bytes) const { return vocabulary_.find(bytes); }

 private:
  /// For the texts of the merges; null unless the ids of a text are those of its parts.
  std::unique_ptr<Joints> find_joints(std::span<const BpeMerge> merges) const;
  void encode_new(std::string_view piece, std::vector<std::int64_t>& ids) const;
  void merge(std::string_view part, std::vector<std::int64_t>& ids) const;
  std::size_t bytes_to_ids(std::string_view piece, std::uint32_t* ids) const;

  static constexpr std::uint32_t kNoId = 0xffffffffU;

  BpeMerges merges_;
  bool whole_pieces_first_;
  std::optional<std::uint32_t> unknown_;
  BytesIndex vocabulary_;
  std::uint32_t byte_ids_[256];
  std::unique_ptr<const Joints> joints_;
  std::unique_ptr<WordCache> cache_;
};

/// The merges (ranked by the ids they make) that a list of byte strings by rank stands for, as tiktoken's algorithm
/// understands it: any two neighbours whose bytes together are in the list merge, the lowest rank first. Empty strings
/// are no pieces. In lists that were made by training each piece has exactly one merge that can happen; only that is
/// given then.
std::vector<BpeMerge> merges_of_ranks(const std::vector<std::string>& pieces);

/// GPT-2's visible spelling of bytes ("Ġ" is a space), which vocab.json, merges.txt and tokenizer.json use.
std::string bytes_to_visible(std::string_view bytes);
/// The bytes; unset if a character is no spelling of a byte.
std::optional<std::string> visible_to_bytes(std::string_view visible);

}  // namespace megatron::tokenizer
