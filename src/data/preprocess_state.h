// PREFIX.resume: how far a preprocessing run has come, so that the next one with the same configuration continues
// there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/indexed_dataset.h"
#include "data/preprocess.h"

namespace megatron::data {

struct PreprocessState {
  std::size_t file = 0;     // input that is being read,
  std::int64_t offset = 0;  // where in its uncompressed bytes,
  std::int64_t lines = 0;   // and how many lines lie before
  PreprocessProgress progress;
  std::vector<WriterPosition> writers;  // one per key
};

/// PREFIX.resume
std::string state_path(const std::string& output_prefix);

/// Digest of everything that decides the output: input files (path, size, time of change), keys, tokenizer, options.
/// Empty when the run cannot be continued because it reads standard input.
std::string preprocess_key(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer);

/// The state under this key; unset where there is none, or one of another run.
std::optional<PreprocessState> load_state(const std::string& output_prefix, const std::string& key);
/// Temporary name, sync, rename. Throws IoError.
void save_state(const std::string& output_prefix, const std::string& key, const PreprocessState& state);
void remove_state(const std::string& output_prefix);

}  // namespace megatron::data
