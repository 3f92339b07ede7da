// How often each piece of a corpus occurs, for a tokenizer that is to be trained on it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tokenizer/bpe_trainer.h"
#include "tokenizer/splitter.h"

namespace megatron::data {

struct CountWordsConfig {
  std::vector<std::string> inputs;  // as preprocess reads them
  std::vector<std::string> json_keys = {"text"};
  int workers = 1;
  std::size_t block_bytes = 1 << 20;
};

/// Cuts each document of JSON Lines, and of text each line with the line feed at its end, by `splitter`. The result
/// does not depend on the number of workers. `report` is called now and then with the bytes read. Throws IoError, of a
/// bad line as "FILE:LINE: reason".
tokenizer::WordCounts count_words(const CountWordsConfig& config, const tokenizer::Splitter& splitter,
                                  const std::function<void(std::int64_t bytes)>& report = {});

}  // namespace megatron::data
