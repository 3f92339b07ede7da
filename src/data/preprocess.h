// Text files to indexed data sets: PREFIX_KEY_document.bin/.idx for every key, as Megatron-LM's preprocess_data.py
// names and fills them.
//
// A document is one sequence; with `append_eod` the end-of-document id follows it. A document without tokens adds a
// document boundary but no sequence and no end-of-document id. The output does not depend on the number of workers; the
// memory depends neither on the files' sizes nor on the number of documents.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace megatron::data {

struct PreprocessConfig {
  std::vector<std::string> inputs;  // read in this order
  std::vector<std::string> json_keys = {"text"};
  std::string output_prefix;
  bool append_eod = false;
  int workers = 1;
  std::size_t block_bytes = 1 << 20;  // read and encoded at a time by one worker
};

struct PreprocessProgress {
  std::int64_t documents = 0;        // lines that hold one, counted once whatever the number of keys
  std::int64_t empty_documents = 0;  // values without tokens, over all keys
  std::int64_t tokens = 0;           // written, over all keys
  std::int64_t bytes = 0;            // read
};

/// Runs to the end; `report` is called now and then. Throws ConfigError for a configuration that cannot work, IoError
/// "FILE:LINE: reason" at the first bad line; then nothing is left under the final names.
PreprocessProgress preprocess(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer,
                              const std::function<void(const PreprocessProgress&)>& report = {});

/// PREFIX_KEY_document
std::string output_name(const std::string& output_prefix, const std::string& key);

}  // namespace megatron::data
