// Several indexed data sets made one (Megatron-LM's tools/merge_datasets.py), and one made several at document borders.
// Sequences, documents and modes are kept; memory is constant; outputs appear under their names when complete.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron::data {

struct WrittenDataset {
  std::string prefix;
  std::int64_t documents = 0, sequences = 0, tokens = 0;
  std::string note;  // what a user should know of it; empty: nothing
};

/// The prefixes of the .bin/.idx pairs of a folder, sorted by name (bytes). Throws IoError when it cannot be read,
/// holds none, or holds half a pair (named).
std::vector<std::string> datasets_in(const std::string& folder);

/// Joins `inputs` in this order. `multimodal`: mode bytes are kept; all inputs must have them. Throws ConfigError when
/// types, modes or tokenizers differ, or the output is one of the inputs. Where an input does not say its tokenizer,
/// the result says none, with a note.
WrittenDataset merge_datasets(const std::vector<std::string>& inputs, const std::string& output_prefix,
                              bool multimodal);

/// OUTPUT_train, OUTPUT_valid, OUTPUT_test by shares of the documents, as `--split` gives them; what has no document is
/// not written. Throws ConfigError for a string that is no split.
std::vector<WrittenDataset> split_dataset(const std::string& input, const std::string& output_prefix,
                                          const std::string& split);
/// OUTPUT_00000 … in `parts` parts whose numbers of documents differ by at most one. Throws ConfigError when there are
/// fewer documents than parts.
std::vector<WrittenDataset> split_into_parts(const std::string& input, const std::string& output_prefix,
                                             std::int64_t parts);

}  // namespace megatron::data
