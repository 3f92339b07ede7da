// Text files to indexed data sets: PREFIX_KEY_document.bin/.idx for every key, as Megatron-LM's preprocess_data.py
// names and fills them.
//
// A document is one sequence; with `append_eod` the end-of-document id follows it. A document without tokens adds a
// document boundary but no sequence and no end-of-document id. The output does not depend on the number of workers; the
// memory depends neither on the files' sizes nor on the number of documents. A run that died is continued by the next
// one with the same configuration, and the files then hold the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace megatron::data {

struct PreprocessConfig {
  std::vector<std::string> inputs;  // read in this order; "-": standard input
  std::vector<std::string> json_keys = {"text"};
  std::string output_prefix;
  bool append_eod = false;
  bool lenient = false;             // bad lines are skipped
  tokenizer::EncodeOptions encode;  // markers in the text, ends around it
  int workers = 1;
  std::size_t block_bytes = 1 << 17;      // read and encoded at a time by one worker
  std::int64_t resume_bytes = 256 << 20;  // of text, after which the work so far is secured on disk
};

struct PreprocessProgress {
  std::int64_t documents = 0;                   // lines that hold one, counted once whatever the number of keys
  std::int64_t empty_documents = 0;             // values without tokens, over all keys
  std::int64_t tokens = 0;                      // written, over all keys
  std::int64_t bytes = 0;                       // of text, those of a run before included
  std::int64_t input_done = 0, input_size = 0;  // bytes on disk; size 0: unknown
  std::map<std::string, std::int64_t> skipped;  // bad lines by kind of reason
  std::vector<std::string> skipped_lines;       // the first 20, "FILE:LINE: reason"
  bool resumed = false;
  std::int64_t resumed_documents = 0, resumed_bytes = 0, resumed_input = 0;  // what a run before had done
};

/// Runs to the end; `report` is called now and then. Throws ConfigError for a configuration that cannot work, IoError
/// "FILE:LINE: reason" at the first bad line (unless lenient); then nothing is left under the final names. When the
/// files cannot be written (a full disk) what was secured is kept for the next run.
PreprocessProgress preprocess(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer,
                              const std::function<void(const PreprocessProgress&)>& report = {});

/// PREFIX_KEY_document
std::string output_name(const std::string& output_prefix, const std::string& key);

}  // namespace megatron::data
