// Indices kept between runs in Megatron-LM's files: HASH-GPTDataset-SPLIT-{description.txt, document_index.npy,
// sample_index.npy, shuffle_index.npy}, HASH = MD5 of the description. Either program reads the other's files.
//
// The files save time and, mapped, memory; the indices are the same without them. What is read is checked against the
// data: sizes, and sample starts at many places, so a file of another kind of run (the description does not tell
// whether samples overlap or a short last one is kept) is built anew. A file of ours, checksums.txt, tells damage; in
// Megatron-LM's caches, which have none, orders must be permutations.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/gpt_index.h"
#include "data/split.h"
#include "tokenizer/tokenizer.h"

namespace megatron::data {

struct IndexCache {
  std::string folder;                // --data-cache-path; empty: no files
  std::optional<std::string> split;  // as given; unset with paths per split
  std::string tokenizer;             // JSON object, see tokenizer_description
};

/// FOLDER/HASH-CLASS-SPLIT-, before the names of the files.
std::string cache_base(const IndexCache& cache, const std::string& description, std::string_view class_name,
                       SplitName split);
/// What stands before the names of a cache's files, and the names of its arrays.
struct CachedFiles {
  std::string base;
  std::vector<std::string> arrays;
};
/// Whether the description is there and says just that.
bool holds_description(const CachedFiles& files, const std::string& description);
/// Whether the arrays have the checksums that were written with them; unset where there are none, as in Megatron-LM's
/// caches. Throws IoError when an array cannot be read.
std::optional<bool> checksums_agree(const CachedFiles& files);
/// Writes checksums.txt and, as the last of the files, description.txt: whoever sees it finds the others.
void write_description(const CachedFiles& files, const std::string& description);
/// Runs `save`, which writes files; returns one line if they cannot be written, nothing if another run writes them.
std::string keep_indices(const IndexCache& cache, const std::function<void()>& save);

/// How a tokenizer stands in a description. Megatron-LM's own text for NullTokenizer; others by their hash.
std::string tokenizer_description(const tokenizer::Tokenizer& tokenizer);

/// The text whose MD5 names the files. `prefix` as given.
std::string gpt_description(const IndexCache& cache, const std::string& prefix, SplitName split,
                            const GptIndexConfig& config);

/// The same as build_gpt_index; from the files under `description` if they fit, else built and written there. What
/// cannot be written is told in `note`, and the run goes on.
GptIndex cached_gpt_index(const IndexCache& cache, const std::string& description, SplitName split,
                          const GptIndexConfig& config, const IndexRange& range,
                          const std::function<std::int64_t(std::int64_t)>& length, std::string& note);

}  // namespace megatron::data
