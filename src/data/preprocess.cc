#include "data/preprocess.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/thread_pool.h"
#include "data/corpus.h"
#include "data/indexed_dataset.h"

namespace megatron::data {
namespace {

/// The documents of one block under one key.
struct EncodedKey {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> sizes;  // bytes of each document; 0: empty
};

struct EncodedBlock {
  std::size_t file = 0;
  std::int64_t lines = 0;
  std::int64_t documents = 0;
  std::vector<EncodedKey> keys;
  std::optional<std::string> error;  // at line `lines` of the block
};

class Encoder {
 public:
  Encoder(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer, TokenType type)
      : config_(config), tokenizer_(tokenizer), type_(type) {}

  /// Stops at the first bad line and keeps its reason.
  void encode(const LineBlock& block, EncodedBlock& out) const {
    out = {};
    out.file = block.file;
    out.keys.resize(config_.json_keys.size());
    std::vector<std::int64_t> ids;
    try {
      for_each_line(block.text, [&](std::string_view line) {
        ++out.lines;
        if (block.kind == CorpusKind::text) {
          add(line, ids, out.keys[0]);
        } else {
          if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
          const std::vector<std::string> texts = json_strings(line, config_.json_keys);
          for (std::size_t k = 0; k < texts.size(); ++k) add(texts[k], ids, out.keys[k]);
        }
        ++out.documents;
      });
    } catch (const std::exception& error) {
      out.error = error.what();
    }
  }

 private:
  void add(std::string_view text, std::vector<std::int64_t>& ids, EncodedKey& key) const {
    ids.clear();
    tokenizer_.encode(text, ids);
    if (!ids.empty() && config_.append_eod) ids.push_back(*tokenizer_.eod());
    const std::size_t before = key.bytes.size();
    append_encoded(ids, type_, key.bytes);
    key.sizes.push_back(static_cast<std::int64_t>(key.bytes.size() - before));
  }

  const PreprocessConfig& config_;
  const tokenizer::Tokenizer& tokenizer_;
  TokenType type_;
};

void check_config(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer) {
  if (config.append_eod && !tokenizer.eod())
    throw ConfigError(
        str_cat("--append-eod: append end-of-document asked, tokenizer ", tokenizer.type(), " has no such token"));
  if (config.inputs.empty()) throw ConfigError("--input: no file is given");
  if (config.json_keys.empty()) throw ConfigError("--json-keys: no key is given");
  for (std::size_t i = 0; i < config.json_keys.size(); ++i)
    if (std::count(config.json_keys.begin(), config.json_keys.end(), config.json_keys[i]) > 1)
      throw ConfigError(str_cat("--json-keys ", config.json_keys[i], ": is given twice"));
  for (const std::string& path : config.inputs)
    if (corpus_kind(path) == CorpusKind::text && config.json_keys.size() > 1)
      throw ConfigError(str_cat("--input ", path, ": a text file has no keys, but ", config.json_keys.size(),
                                " are given by --json-keys"));
}

class Output {
 public:
  Output(const PreprocessConfig& config, TokenType type) {
    for (const std::string& key : config.json_keys)
      writers_.push_back(std::make_unique<IndexedDatasetWriter>(output_name(config.output_prefix, key), type));
  }

  void add(const EncodedBlock& block, PreprocessProgress& progress) {
    progress.documents += block.documents;
    for (std::size_t k = 0; k < writers_.size(); ++k) {
      const EncodedKey& key = block.keys[k];
      std::size_t at = 0;
      for (const std::int64_t size : key.sizes) {
        if (size > 0)
          writers_[k]->add_encoded_sequence(std::span(key.bytes).subspan(at, static_cast<std::size_t>(size)));
        writers_[k]->end_document();
        progress.empty_documents += size == 0 ? 1 : 0;
        at += static_cast<std::size_t>(size);
      }
    }
    progress.tokens = 0;
    for (const auto& writer : writers_) progress.tokens += writer->num_tokens();
  }

  void finish() {
    for (const auto& writer : writers_) writer->seal();
    for (const auto& writer : writers_) writer->publish();
  }

 private:
  std::vector<std::unique_ptr<IndexedDatasetWriter>> writers_;
};

}  // namespace

std::string output_name(const std::string& output_prefix, const std::string& key) {
  return output_prefix + "_" + key + "_document";
}

PreprocessProgress preprocess(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer,
                              const std::function<void(const PreprocessProgress&)>& report) {
  check_config(config, tokenizer);
  const TokenType type = optimal_token_type(tokenizer.vocab_size());
  BlockReader reader(config.inputs, config.block_bytes);
  const Encoder encoder(config, tokenizer, type);
  Output output(config, type);
  ThreadPool pool(std::max(config.workers, 1), /*spin=*/0);
  // Rounds of a few blocks per worker: read, encode by all, write in order.
  std::vector<LineBlock> blocks(2 * static_cast<std::size_t>(std::max(config.workers, 1)));
  std::vector<EncodedBlock> encoded(blocks.size());
  PreprocessProgress progress;
  std::size_t current_file = 0;
  std::int64_t line = 0;
  for (;;) {
    std::size_t count = 0;
    while (count < blocks.size() && reader.next(blocks[count])) ++count;
    if (count == 0) break;
    pool.parallel_for(static_cast<std::int64_t>(count), [&](std::int64_t i, int) {
      encoder.encode(blocks[static_cast<std::size_t>(i)], encoded[static_cast<std::size_t>(i)]);
    });
    for (std::size_t i = 0; i < count; ++i) {
      if (encoded[i].file != current_file) line = 0;
      current_file = encoded[i].file;
      line += encoded[i].lines;
      if (encoded[i].error) throw IoError(str_cat(reader.path(current_file), ":", line, ": ", *encoded[i].error));
      output.add(encoded[i], progress);
    }
    progress.bytes = reader.bytes_read();
    if (report) report(progress);
  }
  if (progress.documents == 0) throw IoError(str_cat(config.inputs[0], ": the input holds no documents"));
  output.finish();
  return progress;
}

}  // namespace megatron::data
