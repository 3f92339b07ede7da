// megatron preprocess: text or JSON lines to PREFIX_KEY_document.bin/.idx.
#include "data/preprocess.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "cli/command.h"
#include "config/nearest.h"
#include "metrics/console.h"

namespace megatron::cli {
namespace {

constexpr const char* kHelp =
    R"(usage: megatron preprocess --input FILE [FILE ...] --output-prefix P --tokenizer-type TYPE [options]

Turns text into P_KEY_document.bin and .idx, the files that --data-path reads.

  --input FILE [FILE ...]     .txt: one document per line; any other name: JSON Lines, one object per line
  --json-keys KEY [KEY ...]   keys whose strings are documents (default: text); one pair of files for each
  --output-prefix P           beginning of the output names
  --tokenizer-type TYPE       ByteLevel or NullTokenizer
  --vocab-size N              for NullTokenizer
  --null-tokenizer-eod-id N   for NullTokenizer (default: vocabulary - 1; -1: none)
  --append-eod                end every document with the end-of-document id
  --workers N                 threads (default: all cores); the output does not depend on it
  --log-interval N            print progress at most every N documents (default: every two seconds))";

enum class Arity { flag, one, many };
struct Option {
  const char* name;
  Arity arity;
  bool built;
};
constexpr std::array<Option, 25> kOptions = {{{"--input", Arity::many, true},
                                              {"--json-keys", Arity::many, true},
                                              {"--output-prefix", Arity::one, true},
                                              {"--tokenizer-type", Arity::one, true},
                                              {"--vocab-size", Arity::one, true},
                                              {"--null-tokenizer-eod-id", Arity::one, true},
                                              {"--null-tokenizer-pad-id", Arity::one, true},
                                              {"--append-eod", Arity::flag, true},
                                              {"--workers", Arity::one, true},
                                              {"--log-interval", Arity::one, true},
                                              {"--help", Arity::flag, true},
                                              {"--split-sentences", Arity::flag, false},
                                              {"--keep-newlines", Arity::flag, false},
                                              {"--keep-sequential-samples", Arity::flag, false},
                                              {"--partitions", Arity::one, false},
                                              {"--lang", Arity::one, false},
                                              {"--find-optimal-num-workers", Arity::flag, false},
                                              {"--vocab-file", Arity::one, false},
                                              {"--merge-file", Arity::one, false},
                                              {"--tokenizer-model", Arity::one, false},
                                              {"--tokenizer-metadata", Arity::one, false},
                                              {"--tokenizer-special-tokens", Arity::many, false},
                                              {"--vocab-extra-ids", Arity::one, false},
                                              {"--tiktoken-pattern", Arity::one, false},
                                              {"--tiktoken-num-special-tokens", Arity::one, false}}};

struct Request {
  data::PreprocessConfig config;
  std::string tokenizer_type;
  tokenizer::TokenizerOptions tokenizer;
  std::int64_t log_interval = 0;
  bool help = false;
};

/// Collects all mistakes of a command line, one line each.
class Parser {
 public:
  explicit Parser(Arguments args) : args_(args) {
    request_.config.workers = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  }

  Request parse() {
    while (at_ < args_.size()) next_option();
    if (request_.help) return request_;
    if (request_.config.inputs.empty()) error("--input: is required");
    if (request_.config.output_prefix.empty()) error("--output-prefix: is required");
    if (request_.tokenizer_type.empty()) error("--tokenizer-type: is required: ByteLevel or NullTokenizer");
    if (request_.tokenizer_type == "ByteLevel")
      for (const std::string& name : of_null_tokenizer_) error(name + ": needs --tokenizer-type NullTokenizer");
    return request_;
  }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  void error(const std::string& text) { errors_.push_back(text); }

  void next_option() {
    const std::string& word = args_[at_++];
    const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals);
    const auto* option =
        std::find_if(kOptions.begin(), kOptions.end(), [&](const Option& o) { return name == o.name; });
    if (option == kOptions.end()) return unknown(name);
    std::vector<std::string> values;
    if (equals != std::string::npos) {
      values.push_back(word.substr(equals + 1));
    } else if (option->arity != Arity::flag) {
      while (at_ < args_.size() && !is_option(args_[at_]) && (option->arity == Arity::many || values.empty()))
        values.push_back(args_[at_++]);
    }
    if (!option->built) return error(name + ": not built in this version");
    if (option->arity == Arity::flag && !values.empty())
      return error(name + ": takes no value, given '" + values[0] + "'");
    if (option->arity != Arity::flag && values.empty()) return error(name + ": a value is missing");
    store(name, values);
  }

  /// A negative number is a value.
  static bool is_option(const std::string& word) {
    return word.size() > 1 && word[0] == '-' && !(word[1] >= '0' && word[1] <= '9');
  }

  void unknown(const std::string& name) {
    if (!name.starts_with("-")) return error("'" + name + "': is not an option");
    std::vector<std::string> names;
    for (const Option& option : kOptions) names.emplace_back(option.name);
    const std::string near = config::nearest_name(name, names);
    error(name + ": unknown option" + (near.empty() ? "" : "; nearest is " + near));
    while (at_ < args_.size() && !is_option(args_[at_])) ++at_;
  }

  std::int64_t integer(const std::string& name, const std::string& text, std::int64_t least) {
    std::string digits;
    for (const char c : text)
      if (c != '_') digits += c;
    std::int64_t value = 0;
    const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || code != std::errc() || stop != digits.data() + digits.size())
      error(name + " " + text + ": must be an integer");
    else if (value < least)
      error(str_cat(name, " ", text, ": must be at least ", least));
    return value;
  }

  void store(const std::string& name, const std::vector<std::string>& values) {
    if (name == "--vocab-size" || name.starts_with("--null-tokenizer")) of_null_tokenizer_.push_back(name);
    if (name == "--input") request_.config.inputs = values;
    if (name == "--json-keys") request_.config.json_keys = values;
    if (name == "--output-prefix") request_.config.output_prefix = values[0];
    if (name == "--tokenizer-type") request_.tokenizer_type = values[0];
    if (name == "--vocab-size") request_.tokenizer.vocab_size = integer(name, values[0], 1);
    if (name == "--null-tokenizer-eod-id") request_.tokenizer.null_eod_id = integer(name, values[0], -1);
    if (name == "--null-tokenizer-pad-id") request_.tokenizer.null_pad_id = integer(name, values[0], -1);
    if (name == "--append-eod") request_.config.append_eod = true;
    if (name == "--workers")
      request_.config.workers = static_cast<int>(std::min<std::int64_t>(integer(name, values[0], 1), 1024));
    if (name == "--log-interval") request_.log_interval = integer(name, values[0], 1);
    if (name == "--help") request_.help = true;
  }

  Arguments args_;
  std::size_t at_ = 0;
  Request request_;
  std::vector<std::string> errors_;
  std::vector<std::string> of_null_tokenizer_;  // given options that only NullTokenizer has
};

/// Prints how far the work is: every two seconds, or whenever another `interval` documents are done.
class Progress {
 public:
  explicit Progress(std::int64_t interval) : interval_(interval), console_(stderr) {}

  void report(const data::PreprocessProgress& progress) {
    const auto now = Clock::now();
    const bool due = interval_ > 0 ? progress.documents >= printed_documents_ + interval_
                                   : now >= printed_ + std::chrono::seconds(console_.is_terminal() ? 0 : 2);
    if (!due) return;
    printed_ = now;
    printed_documents_ = progress.documents;
    if (console_.is_terminal() && interval_ == 0)
      console_.progress(text(progress));
    else
      console_.line(text(progress));
  }

  std::string text(const data::PreprocessProgress& progress) const {
    const double seconds = std::max(std::chrono::duration<double>(Clock::now() - start_).count(), 1e-9);
    char out[160];
    std::snprintf(out, sizeof(out), "Processed %lld documents (%.0f docs/s, %.2f MB/s).",
                  static_cast<long long>(progress.documents), static_cast<double>(progress.documents) / seconds,
                  static_cast<double>(progress.bytes) / 1e6 / seconds);
    return out;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t interval_;
  metrics::Console console_;
  Clock::time_point start_ = Clock::now(), printed_ = start_;
  std::int64_t printed_documents_ = 0;
};

void print_result(const Request& request, const data::PreprocessProgress& result, const Progress& progress) {
  std::printf("%s\n", progress.text(result).c_str());
  std::printf("%lld documents, %lld empty, %lld tokens, %s end-of-document ids\n",
              static_cast<long long>(result.documents), static_cast<long long>(result.empty_documents),
              static_cast<long long>(result.tokens), request.config.append_eod ? "with" : "without");
  for (const std::string& key : request.config.json_keys) {
    const std::string prefix = data::output_name(request.config.output_prefix, key);
    std::printf("wrote %s.bin and .idx (--data-path %s)\n", prefix.c_str(), prefix.c_str());
  }
}

}  // namespace

int run_preprocess(Arguments args) {
  Parser parser(args);
  Request request = parser.parse();
  if (request.help) {
    std::puts(kHelp);
    return 0;
  }
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<std::string> errors = parser.errors();
  if (!request.tokenizer_type.empty()) {
    try {
      tokenizer = tokenizer::create_tokenizer(request.tokenizer_type, request.tokenizer);
    } catch (const ConfigError& error) {
      errors.emplace_back(error.what());
    }
  }
  if (!errors.empty()) {
    for (const std::string& error : errors) std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  Progress progress(request.log_interval);
  const auto result = data::preprocess(request.config, *tokenizer,
                                       [&](const data::PreprocessProgress& done) { progress.report(done); });
  print_result(request, result, progress);
  return 0;
}

}  // namespace megatron::cli
