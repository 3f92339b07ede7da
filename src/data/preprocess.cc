#include "data/preprocess.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "base/thread_pool.h"
#include "data/corpus.h"
#include "data/indexed_dataset.h"
#include "data/line_encoder.h"
#include "data/preprocess_state.h"
#include "data/tokenizer_stamp.h"

namespace megatron::data {
namespace {

void check_config(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer) {
  if (config.append_eod && !tokenizer.eod())
    throw ConfigError(str_cat("--append-eod: append end-of-document asked, tokenizer ", tokenizer.type(),
                              " has no such token",
                              tokenizer.type() == "HuggingFaceTokenizer"
                                  ? "; one that train-tokenizer learns has it with --special-tokens '<|endoftext|>'"
                                  : ""));
  if (config.inputs.empty()) throw ConfigError("--input: no file is given");
  if (config.json_keys.empty()) throw ConfigError("--json-keys: no key is given");
  for (std::size_t i = 0; i < config.json_keys.size(); ++i)
    if (std::count(config.json_keys.begin(), config.json_keys.end(), config.json_keys[i]) > 1)
      throw ConfigError(str_cat("--json-keys ", config.json_keys[i], ": is given twice"));
  if (std::count(config.inputs.begin(), config.inputs.end(), "-") > 1)
    throw ConfigError("--input -: standard input can be read only once");
  for (const std::string& path : config.inputs)
    if (corpus_kind(path) == CorpusKind::text && config.json_keys.size() > 1)
      throw ConfigError(str_cat("--input ", path, ": a text file has no keys, but ", config.json_keys.size(),
                                " are given by --json-keys"));
}

/// A bad line ends a strict run.
class StrictStop : public IoError {
 public:
  using IoError::IoError;
};

/// The data sets of all keys, and how far they have come.
class Output {
 public:
  Output(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer, TokenType type)
      : config_(config), tokenizer_(tokenizer), key_(preprocess_key(config, tokenizer)) {
    std::optional<PreprocessState> found = load_state(config.output_prefix, key_);
    if (found && found->writers.size() == config.json_keys.size() && continues(*found, type)) return;
    open_writers({}, type);
    remove_state(config.output_prefix);
  }

  const PreprocessState& state() const { return state_; }
  PreprocessProgress& progress() { return state_.progress; }

  /// Throws StrictStop for a bad line of a strict run.
  void add(const EncodedBlock& block, const std::string& path) {
    PreprocessProgress& progress = state_.progress;
    const std::int64_t lines_before = block.file == state_.file ? state_.lines : 0;
    for (const SkippedLine& skipped : block.skipped) {
      if (!config_.lenient) {
        remove_state(config_.output_prefix);  // the input must change: what was secured is of no use
        throw StrictStop(str_cat(path, ":", lines_before + skipped.line, ": ", skipped.reason));
      }
      ++progress.skipped[skipped.kind];
      if (progress.skipped_lines.size() < kKeptReasons)
        progress.skipped_lines.push_back(str_cat(path, ":", lines_before + skipped.line, ": ", skipped.reason));
    }
    for (std::size_t k = 0; k < writers_.size(); ++k) write(block.keys[k], *writers_[k]);
    state_.file = block.file;
    state_.lines = lines_before + block.lines;
    state_.offset = block.end_offset;
    progress.documents += block.documents;
    progress.bytes += block.text_bytes;
    progress.input_done = block.input_done;
    progress.tokens = 0;
    for (const auto& writer : writers_) progress.tokens += writer->num_tokens();
    if (!key_.empty() && progress.bytes - secured_bytes_ >= config_.resume_bytes) secure();
  }

  void finish() {
    for (const auto& writer : writers_) writer->seal();
    const std::string stamp = tokenizer_stamp(tokenizer_, config_.append_eod);
    for (std::size_t k = 0; k < writers_.size(); ++k)
      publish_with_stamp(*writers_[k], output_name(config_.output_prefix, config_.json_keys[k]), stamp);
    remove_state(config_.output_prefix);
  }

  /// What was secured outlives the object. Returns what to say of it.
  std::string keep() {
    if (!secured_) return "";
    for (const auto& writer : writers_) writer->keep();
    return str_cat("; ", config_.output_prefix, "*.tmp keep what is done: the same command continues there");
  }

 private:
  bool continues(const PreprocessState& found, TokenType type) {
    try {
      open_writers(found.writers, type);
    } catch (const FileShort&) {
      writers_.clear();  // nothing to continue
      return false;
    } catch (...) {
      for (const auto& writer : writers_) writer->keep();
      throw;
    }
    state_ = found;
    PreprocessProgress& progress = state_.progress;
    progress.resumed = true;
    progress.resumed_documents = progress.documents;
    progress.resumed_bytes = secured_bytes_ = progress.bytes;
    progress.resumed_input = progress.input_done;
    secured_ = true;
    return true;
  }

  void open_writers(const std::vector<WriterPosition>& from, TokenType type) {
    for (std::size_t k = 0; k < config_.json_keys.size(); ++k)
      writers_.push_back(
          std::make_unique<IndexedDatasetWriter>(output_name(config_.output_prefix, config_.json_keys[k]), type,
                                                 /*multimodal=*/false, from.empty() ? WriterPosition{} : from[k]));
  }

  void write(const EncodedKey& key, IndexedDatasetWriter& writer) {
    std::size_t at = 0;
    for (const std::int64_t size : key.sizes) {
      if (size > 0) writer.add_encoded_sequence(std::span(key.bytes).subspan(at, static_cast<std::size_t>(size)));
      writer.end_document();
      state_.progress.empty_documents += size == 0 ? 1 : 0;
      at += static_cast<std::size_t>(size);
    }
  }

  void secure() {
    state_.writers.clear();
    for (const auto& writer : writers_) state_.writers.push_back(writer->checkpoint());
    save_state(config_.output_prefix, key_, state_);
    secured_bytes_ = state_.progress.bytes;
    secured_ = true;
  }

  const PreprocessConfig& config_;
  const tokenizer::Tokenizer& tokenizer_;
  std::string key_;
  std::vector<std::unique_ptr<IndexedDatasetWriter>> writers_;
  PreprocessState state_;
  std::int64_t secured_bytes_ = 0;
  bool secured_ = false;
};

/// Of a round. Threads wait for each other at its end, for up to one block's time.
constexpr std::size_t kBlocksPerWorker = 16;

/// What is read, encoded and written together.
struct Round {
  std::vector<LineBlock> blocks;
  std::vector<EncodedBlock> encoded;
  std::vector<std::int64_t> input_done;
  std::size_t count = 0;
  std::exception_ptr error;  // of reading, after `count` blocks
};

void read_round(BlockReader& reader, Round& round) {
  round.count = 0;
  try {
    while (round.count < round.blocks.size() && reader.next(round.blocks[round.count]))
      round.input_done[round.count++] = reader.input_consumed();
  } catch (...) {
    round.error = std::current_exception();
  }
}

/// While the blocks of one round are encoded by all threads, the next is read and the one before is written.
class Pipeline {
 public:
  Pipeline(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer, TokenType type, Output& output)
      : reader_(config.inputs, config.block_bytes), pool_(std::max(config.workers, 1), /*spin=*/0), output_(output) {
    const LineEncoderConfig encoder{config.json_keys, config.append_eod, config.lenient, config.encode, type};
    for (int w = 0; w < pool_.num_threads(); ++w)
      encoders_.push_back(std::make_unique<LineEncoder>(encoder, tokenizer));
    for (Round& round : rounds_) {
      round.blocks.resize(kBlocksPerWorker * encoders_.size());
      round.encoded.resize(round.blocks.size());
      round.input_done.resize(round.blocks.size());
    }
    if (output.progress().resumed) reader_.seek(output.state().file, output.state().offset);
    output.progress().input_size = reader_.input_size();
  }

  void run(const std::function<void(const PreprocessProgress&)>& report) {
    read_round(reader_, rounds_[0]);
    for (std::size_t turn = 0;; ++turn) {
      Round &current = rounds_[turn % 3], &next = rounds_[(turn + 1) % 3], &before = rounds_[(turn + 2) % 3];
      if (current.count == 0 && before.count == 0 && current.error == nullptr && before.error == nullptr) return;
      step(current, next, before);
      if (failure_ != nullptr) std::rethrow_exception(failure_);
      if (before.error != nullptr) std::rethrow_exception(before.error);
      if (report) report(output_.progress());
    }
  }

 private:
  void step(Round& current, Round& next, Round& before) {
    pool_.parallel_for(static_cast<std::int64_t>(current.count) + 2, [&](std::int64_t i, int worker) {
      if (i == 0) {
        if (current.error == nullptr && current.count > 0)
          read_round(reader_, next);
        else
          next.count = 0;
      } else if (i == 1) {
        write_round(before);
      } else {
        const auto at = static_cast<std::size_t>(i - 2);
        try {
          encoders_[static_cast<std::size_t>(worker)]->encode(current.blocks[at], current.encoded[at]);
        } catch (...) {
          fail(std::current_exception());
        }
        current.encoded[at].input_done = current.input_done[at];
      }
    });
  }

  void write_round(Round& round) {
    try {
      for (std::size_t i = 0; i < round.count; ++i) output_.add(round.encoded[i], reader_.path(round.encoded[i].file));
    } catch (...) {
      fail(std::current_exception());
    }
    round.count = 0;
  }

  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(error);
  }

  BlockReader reader_;
  ThreadPool pool_;
  Output& output_;
  std::vector<std::unique_ptr<LineEncoder>> encoders_;
  Round rounds_[3];
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

std::string output_name(const std::string& output_prefix, const std::string& key) {
  return output_prefix + "_" + key + "_document";
}

PreprocessProgress preprocess(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer,
                              const std::function<void(const PreprocessProgress&)>& report) {
  check_config(config, tokenizer);
  const TokenType type = optimal_token_type(tokenizer.vocab_size());
  Output output(config, tokenizer, type);
  try {
    Pipeline(config, tokenizer, type, output).run(report);
    const PreprocessProgress& progress = output.progress();
    if (progress.documents == 0) {
      const std::string first = progress.skipped_lines.empty() ? "" : "; " + progress.skipped_lines[0];
      throw StrictStop(str_cat(config.inputs[0], ": the input holds no documents", first));
    }
    output.finish();
  } catch (const StrictStop&) {
    throw;
  } catch (const IoError& error) {
    throw IoError(error.what() + output.keep());
  } catch (...) {
    output.keep();
    throw;
  }
  return output.progress();
}

}  // namespace megatron::data
