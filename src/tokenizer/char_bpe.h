// The BPE section of a tokenizer.json, and the model over characters: with unknown characters, their bytes as a way
// out, and marks on pieces that continue or end a word. (Byte-level files without these take the faster ByteBpe.)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/word_model.h"

namespace megatron::tokenizer {

struct BpeFile {
  Vocabulary vocabulary;
  std::vector<BpeMerge> merges;      // each pair once
  std::vector<std::uint32_t> ranks;  // of the merges; empty: their places
  std::optional<std::uint32_t> unknown;
  bool fuse_unknown = false;       // neighbouring unknown characters become one id
  bool byte_fallback = false;      // unknown characters become <0x..> ids
  bool whole_words_first = false;  // a word of the vocabulary is not merged ("ignore_merges")
  std::string prefix;              // of pieces that continue a word
  std::string suffix;              // of the piece that ends a word

  /// Refuses what is damaged, with its place; dropout by its name.
  static BpeFile read(const JsonNode& node);
};

/// `file` and `unreachable` must outlive the model. Characters that are unknown vanish if nothing stands for unknown,
/// as in HuggingFace's library. Words are cut where no merge can join the two sides (joints.h); short parts that were
/// seen are remembered. A word of n characters takes at most n log n.
std::unique_ptr<WordModel> make_char_bpe(const BpeFile& file, const Unreachable& unreachable);

}  // namespace megatron::tokenizer
