// megatron train-tokenizer: learns a byte-level BPE vocabulary from text and writes the files that tokenizers read.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "base/check.h"
#include "cli/argument_parser.h"
#include "cli/command.h"
#include "data/count_words.h"
#include "data/output_file.h"
#include "metrics/console.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/trained_files.h"

namespace megatron::cli {
namespace {

constexpr const char* kHelp =
    R"(usage: megatron train-tokenizer --input FILE [FILE ...] --vocab-size N --output DIR [options]

Learns a byte-level BPE vocabulary and writes DIR/tokenizer.json (--tokenizer-type HuggingFaceTokenizer), DIR/vocab.json
and DIR/merges.txt (--tokenizer-type GPT2BPETokenizer). Merges and ids are those of Hugging Face's BpeTrainer.

  --input FILE [FILE ...]     files as preprocess reads them; of text each line is counted with its line feed
  --json-keys KEY [KEY ...]   keys whose strings are documents (default: text)
  --vocab-size N              tokens in all: special ones, the 256 bytes, and one per merge
  --special-tokens T [T ...]  the first ids, in this order (default: none); name <|endoftext|> to end documents by
  --min-frequency N           a pair that occurs less often is not merged (default: 0)
  --pattern NAME              how text is cut into words: gpt2 (default), cl100k, o200k, llama3 or qwen2
  --workers N                 threads (default: all cores); the result does not depend on it
  --output DIR                folder, made if it is not there)";

struct Request {
  data::CountWordsConfig corpus;
  tokenizer::BpeTrainerOptions bpe;
  std::int64_t workers = std::max(std::thread::hardware_concurrency(), 1U);
  std::string pattern = "gpt2";
  std::string output;
  bool help = false;
};

constexpr std::string_view kPatterns[] = {"gpt2", "cl100k", "o200k", "llama3", "qwen2"};

/// Returns the mistakes, one line each.
std::vector<std::string> parse(Arguments args, Request& request) {
  std::optional<std::int64_t> vocab_size;
  ArgumentParser parser;
  parser.list("--input", request.corpus.inputs);
  parser.list("--json-keys", request.corpus.json_keys);
  parser.integer("--vocab-size", vocab_size, 1);
  parser.list("--special-tokens", request.bpe.special_tokens);
  parser.integer("--min-frequency", request.bpe.min_frequency, 0);
  parser.text("--pattern", request.pattern);
  parser.integer("--workers", request.workers, 1);
  parser.text("--output", request.output);
  parser.flag("--help", request.help);
  parser.flag("-h", request.help);
  std::vector<std::string> errors = parser.parse(args);
  if (request.help) return {};
  if (request.corpus.inputs.empty()) errors.emplace_back("--input: is required");
  if (request.output.empty()) errors.emplace_back("--output: is required: a folder");
  if (!vocab_size.has_value()) errors.emplace_back("--vocab-size: is required");
  if (std::find(std::begin(kPatterns), std::end(kPatterns), request.pattern) == std::end(kPatterns))
    errors.push_back(str_cat("--pattern ", request.pattern, ": must be gpt2, cl100k, o200k, llama3 or qwen2"));
  request.bpe.vocab_size = std::min<std::int64_t>(vocab_size.value_or(0), std::numeric_limits<std::int32_t>::max());
  request.corpus.workers = static_cast<int>(std::min<std::int64_t>(request.workers, 1024));
  if (vocab_size.has_value()) {
    try {
      tokenizer::train_bpe({}, request.bpe);  // refuses what cannot be before the text is read
    } catch (const ConfigError& error) {
      errors.push_back(str_cat("--vocab-size ", *vocab_size, ": ", error.what()));
    }
  }
  return errors;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  data::OutputFile file(path.string());
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.commit();
}

}  // namespace

int run_train_tokenizer(Arguments args) {
  Request request;
  const std::vector<std::string> errors = parse(args, request);
  if (request.help) {
    std::puts(kHelp);
    return 0;
  }
  for (const std::string& error : errors) std::fprintf(stderr, "%s\n", error.c_str());
  if (!errors.empty()) return 2;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  metrics::Console console(stderr);
  double printed = 0.0;
  const std::string_view pattern = tokenizer::named_pattern(request.pattern);
  const auto splitter = tokenizer::make_splitter(pattern, tokenizer::SplitBehavior::isolated);
  const tokenizer::WordCounts counts = data::count_words(request.corpus, *splitter, [&](std::int64_t bytes) {
    if (seconds() < printed + 2.0) return;
    printed = seconds();
    console.line(str_cat("counted ", bytes / 1'000'000, " MB in ", static_cast<std::int64_t>(printed), " s"));
  });
  if (counts.counts().empty()) throw IoError(str_cat(request.corpus.inputs[0], ": the input holds no text"));
  const tokenizer::TrainedBpe bpe = tokenizer::train_bpe(counts, request.bpe);
  const std::filesystem::path folder = request.output;
  std::filesystem::create_directories(folder);
  write_file(folder / "vocab.json", tokenizer::vocab_json(bpe));
  write_file(folder / "merges.txt", tokenizer::merges_txt(bpe));
  write_file(folder / "tokenizer.json", tokenizer::tokenizer_json(bpe, request.bpe.special_tokens.size(), pattern));
  std::printf("%zu tokens, %zu merges from %zu different words in %.1f s%s\n", bpe.tokens.size(), bpe.merges.size(),
              counts.counts().size(), seconds(),
              std::ssize(bpe.tokens) < request.bpe.vocab_size ? "; no more pairs to merge" : "");
  std::printf("wrote tokenizer.json, vocab.json and merges.txt to %s\n", request.output.c_str());
  return 0;
}

}  // namespace megatron::cli
