// `--train-data`: raw text that is tokenised at the first start and is an ordinary indexed data set from then on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/preprocess.h"
#include "tokenizer/tokenizer.h"

namespace megatron::data {

struct RawTextConfig {
  std::vector<std::string> sources;  // files and folders
  std::vector<std::string> json_keys = {"text"};
  bool append_eod = false;
  std::string cache_folder;  // made if it is not there
  int workers = 1;
  std::function<void(const std::string& line)> say;                // one line on what happens
  std::function<void(const PreprocessProgress& progress)> report;  // now and then while text is tokenised
  std::function<void()> interrupt;  // often while text is tokenised or another run waited for; may throw to end that
};

/// The files behind `sources`: files as given; of folders, with all below them, those whose names end in .jsonl, .json,
/// .txt, plain or with .gz or .zst, sorted by path (bytes). Throws ConfigError for a folder without such a file,
/// IoError for what is not there.
std::vector<std::string> raw_text_files(const std::vector<std::string>& sources);

/// The prefixes of the data sets, one per key: CACHE/text-HASH_KEY_document, HASH over the files' content, tokenizer,
/// keys and options. What is there is used; else it is made with `preprocess` (same bytes), by one process: others wait
/// for it. The content's hash is remembered beside it under names, sizes and times of the files, so that later starts
/// need not read them.
std::vector<std::string> tokenize_raw_text(const RawTextConfig& config, const tokenizer::Tokenizer& tokenizer);

}  // namespace megatron::data
