// megatron train-tokenizer: learns a vocabulary from text and writes the files that tokenizers read.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "base/check.h"
#include "base/text.h"
#include "cli/argument_parser.h"
#include "cli/command.h"
#include "config/text_value.h"
#include "data/count_words.h"
#include "data/document_reader.h"
#include "data/output_file.h"
#include "metrics/console.h"
#include "tokenizer/sentencepiece_trainer.h"
#include "tokenizer/splitter.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/trained_files.h"
#include "train/machine.h"

namespace megatron::cli {
namespace {

constexpr const char* kHelp =
    R"(usage: megatron train-tokenizer --input FILE [FILE ...] --vocab-size N --output DIR [options]

Learns a vocabulary from text. By default byte-level BPE: writes DIR/tokenizer.json (--tokenizer-type
HuggingFaceTokenizer), DIR/vocab.json and DIR/merges.txt (--tokenizer-type GPT2BPETokenizer), with the merges and ids of
Hugging Face's BpeTrainer. With --tokenizer-type SentencePieceTokenizer the sentencepiece library's trainer: writes
DIR/tokenizer.model.

  --input FILE [FILE ...]     files as preprocess reads them; of text each line is counted with its line feed
  --json-keys KEY [KEY ...]   keys whose strings are documents (default: text)
  --vocab-size N              tokens in all: special ones, the 256 bytes, and one per merge
  --special-tokens T [T ...]  the first ids, in this order (default: none); name <|endoftext|> to end documents by;
                              of a SentencePiece model they follow <unk>, <s> and </s>
  --output DIR                folder, made if it is not there

byte-level BPE
  --workers N                 threads (default: all cores); the result does not depend on it
  --min-frequency N           a pair that occurs less often is not merged (default: 0)
  --pattern NAME              how text is cut into words: gpt2 (default), cl100k, o200k, llama3 or qwen2

SentencePiece
  --model-type TYPE           unigram (default), bpe, word or char
  --character-coverage X      share of the text's characters that get a piece of their own (default: 0.9995)
  --byte-fallback             other characters become their bytes, not <unk>)";

struct Request {
  data::CountWordsConfig corpus;
  tokenizer::BpeTrainerOptions bpe;
  tokenizer::SentencePieceTrainerOptions sentencepiece;
  std::string tokenizer_type = "HuggingFaceTokenizer";
  std::int64_t workers = train::usable_cores();
  std::string pattern = "gpt2";
  std::string output;
  bool help = false;
};

constexpr std::string_view kPatterns[] = {"gpt2", "cl100k", "o200k", "llama3", "qwen2"};
constexpr std::string_view kModelTypes[] = {"unigram", "bpe", "word", "char"};

template <std::size_t N>
void check_choice(const char* option, const std::string& value, const std::string_view (&known)[N],
                  std::vector<std::string>& errors) {
  if (std::find(std::begin(known), std::end(known), value) == std::end(known))
    errors.push_back(str_cat(option, " ", value, ": must be one of ",
                             joined(std::vector<std::string>(std::begin(known), std::end(known)), ", ")));
}

bool learns_sentencepiece(const Request& request) { return request.tokenizer_type == "SentencePieceTokenizer"; }

/// Options that the chosen trainer does not read are mistakes.
void check_trainer(const ArgumentParser& parser, const Request& request, std::vector<std::string>& errors) {
  constexpr std::string_view kTypes[] = {"HuggingFaceTokenizer", "GPT2BPETokenizer", "SentencePieceTokenizer"};
  check_choice("--tokenizer-type", request.tokenizer_type, kTypes, errors);
  const bool sentencepiece = learns_sentencepiece(request);
  for (const char* name : {"--model-type", "--character-coverage", "--byte-fallback"})
    if (!sentencepiece && parser.given(name))
      errors.push_back(str_cat(name, ": needs --tokenizer-type SentencePieceTokenizer"));
  for (const char* name : {"--pattern", "--min-frequency", "--workers"})
    if (sentencepiece && parser.given(name)) errors.push_back(str_cat(name, ": SentencePiece has no such option"));
}

/// Returns the mistakes, one line each.
std::vector<std::string> parse(Arguments args, Request& request) {
  std::optional<std::int64_t> vocab_size;
  std::string coverage = "0.9995";
  ArgumentParser parser;
  parser.list("--input", request.corpus.inputs);
  parser.list("--json-keys", request.corpus.json_keys);
  parser.integer("--vocab-size", vocab_size, 1);
  parser.list("--special-tokens", request.bpe.special_tokens);
  parser.integer("--min-frequency", request.bpe.min_frequency, 0);
  parser.text("--pattern", request.pattern);
  parser.text("--tokenizer-type", request.tokenizer_type);
  parser.text("--model-type", request.sentencepiece.model_type);
  parser.text("--character-coverage", coverage);
  parser.flag("--byte-fallback", request.sentencepiece.byte_fallback);
  parser.integer("--workers", request.workers, 1);
  parser.text("--output", request.output);
  parser.flag("--help", request.help);
  parser.flag("-h", request.help);
  std::vector<std::string> errors = parser.parse(args);
  if (request.help) return {};
  if (request.corpus.inputs.empty()) errors.emplace_back("--input: is required");
  if (request.output.empty()) errors.emplace_back("--output: is required: a folder");
  if (!parser.given("--vocab-size")) errors.emplace_back("--vocab-size: is required");
  check_choice("--pattern", request.pattern, kPatterns, errors);
  check_choice("--model-type", request.sentencepiece.model_type, kModelTypes, errors);
  check_trainer(parser, request, errors);
  const std::optional<double> share = config::parse_real(coverage);
  if (!share || !(*share >= 0.98 && *share <= 1.0))
    errors.push_back(str_cat("--character-coverage ", coverage, ": must be from 0.98 to 1"));
  request.sentencepiece.character_coverage = share.value_or(1.0);
  request.sentencepiece.vocab_size = vocab_size.value_or(0);
  request.sentencepiece.special_tokens = request.bpe.special_tokens;
  request.bpe.vocab_size = std::min<std::int64_t>(vocab_size.value_or(0), std::numeric_limits<std::int32_t>::max());
  request.corpus.workers = static_cast<int>(std::min<std::int64_t>(request.workers, 1024));
  for (const char* taken : {"<unk>", "<s>", "</s>"})
    for (const std::string& name : request.bpe.special_tokens)
      if (learns_sentencepiece(request) && name == taken)
        errors.push_back(str_cat("--special-tokens ", name, ": a SentencePiece model has it by itself"));
  if (vocab_size.has_value() && !learns_sentencepiece(request)) {
    try {
      tokenizer::train_bpe({}, request.bpe);  // refuses what cannot be before the text is read
    } catch (const ConfigError& error) {
      errors.emplace_back(error.what());
    }
  }
  return errors;
}

/// A folder that cannot be written is better known before the text is read than after it.
void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw IoError(str_cat("--output ", path, ": cannot be made: ", error.message()));
  data::OutputFile((std::filesystem::path(path) / "tokenizer").string());
}

/// "read N MB in S s" every two seconds; the seconds since it was made.
class Progress {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void say(std::int64_t bytes) {
    if (seconds() < printed_ + 2.0) return;
    printed_ = seconds();
    console_.line(str_cat("read ", bytes / 1'000'000, " MB in ", static_cast<std::int64_t>(printed_), " s"));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double printed_ = 0.0;
  metrics::Console console_{stderr};
};

void learn_bpe(const Request& request) {
  Progress progress;
  const std::string_view pattern = tokenizer::named_pattern(request.pattern);
  const auto splitter = tokenizer::make_splitter(pattern, tokenizer::SplitBehavior::isolated);
  const tokenizer::WordCounts counts =
      data::count_words(request.corpus, *splitter, [&](std::int64_t bytes) { progress.say(bytes); });
  if (counts.counts().empty()) throw IoError(str_cat(request.corpus.inputs[0], ": the input holds no text"));
  const tokenizer::TrainedBpe bpe = tokenizer::train_bpe(counts, request.bpe);
  const std::filesystem::path folder = request.output;
  data::write_whole_file((folder / "vocab.json").string(), tokenizer::vocab_json(bpe));
  data::write_whole_file((folder / "merges.txt").string(), tokenizer::merges_txt(bpe));
  data::write_whole_file((folder / "tokenizer.json").string(),
                         tokenizer::tokenizer_json(bpe, request.bpe.special_tokens.size(), pattern));
  std::printf("%zu tokens, %zu merges from %zu different words in %.1f s%s\n", bpe.tokens.size(), bpe.merges.size(),
              counts.counts().size(), progress.seconds(),
              std::ssize(bpe.tokens) < request.bpe.vocab_size ? "; no more pairs to merge" : "");
  std::printf("wrote tokenizer.json, vocab.json and merges.txt to %s\n", request.output.c_str());
}

void learn_sentencepiece(const Request& request) {
  Progress progress;
  data::DocumentReader reader(request.corpus.inputs, request.corpus.json_keys);
  const std::string model = tokenizer::train_sentencepiece(request.sentencepiece, [&](std::string& text) {
    progress.say(reader.bytes_read());
    return reader.next(text);
  });
  const std::filesystem::path path = std::filesystem::path(request.output) / "tokenizer.model";
  data::write_whole_file(path.string(), model);
  tokenizer::TokenizerOptions options;
  options.tokenizer_model = path.string();
  const auto pieces = tokenizer::create_tokenizer(request.tokenizer_type, options)->vocab_size();
  std::printf("%lld pieces (%s) in %.1f s\nwrote tokenizer.model to %s\n", static_cast<long long>(pieces),
              request.sentencepiece.model_type.c_str(), progress.seconds(), request.output.c_str());
}

}  // namespace

int run_train_tokenizer(Arguments args) {
  Request request;
  const std::vector<std::string> errors = parse(args, request);
  if (request.help) {
    std::puts(kHelp);
    return 0;
  }
  if (!errors.empty()) return refuse(errors);
  make_folder(request.output);
  learns_sentencepiece(request) ? learn_sentencepiece(request) : learn_bpe(request);
  return 0;
}

}  // namespace megatron::cli
