// megatron preprocess: text or JSON lines to PREFIX_KEY_document.bin/.idx.
#include "data/preprocess.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/argument_parser.h"
#include "cli/command.h"
#include "cli/tokenizer_arguments.h"
#include "metrics/console.h"
#include "train/machine.h"

namespace megatron::cli {
namespace {

constexpr const char* kHelp =
    R"(usage: megatron preprocess --input FILE [FILE ...] --output-prefix P --tokenizer-type TYPE [options]

Turns text into P_KEY_document.bin and .idx, the files that --data-path reads, and P_KEY_document.tokenizer.json, by
which training notices another tokenizer. The same command after a kill continues where the last one was.

  --input FILE [FILE ...]     .txt: one document per line; any other name: JSON Lines, one object per line; either may
                              end in .gz or .zst; -: JSON Lines from standard input
  --json-keys KEY [KEY ...]   keys whose strings are documents (default: text); one pair of files for each
  --output-prefix P           beginning of the output names
  --append-eod                end every document with the end-of-document id
  --lenient                   skip bad lines and report them (default: the first one ends the command)
  --workers N                 threads (default: all cores); the output does not depend on it
  --log-interval N            print progress at most every N documents (default: every two seconds)
  --resume-interval MB        text after which the work so far is secured against a kill (default: 256)
)";

struct Request {
  data::PreprocessConfig config;
  TokenizerArguments tokenizer;
  std::int64_t workers = train::usable_cores();
  std::int64_t log_interval = 0, resume_megabytes = 256;
  bool help = false;
};

void add_rows(ArgumentParser& parser, Request& request) {
  parser.list("--input", request.config.inputs);
  parser.list("--json-keys", request.config.json_keys);
  parser.text("--output-prefix", request.config.output_prefix);
  parser.flag("--append-eod", request.config.append_eod);
  parser.flag("--lenient", request.config.lenient);
  parser.integer("--workers", request.workers, 1);
  parser.integer("--log-interval", request.log_interval, 1);
  parser.integer("--resume-interval", request.resume_megabytes, 1);
  parser.flag("--help", request.help);
  parser.flag("-h", request.help);
  request.tokenizer.add_to(parser);
  for (const char* name : {"--split-sentences", "--keep-newlines", "--lang"})
    parser.refuse(name, "not built in this version; documents are not split into sentences");
  for (const char* name : {"--keep-sequential-samples", "--partitions"})
    parser.refuse(name, "not built in this version; the order is always the input's, with any --workers");
  parser.refuse("--find-optimal-num-workers", "not built in this version; --workers is all cores unless given");
}

/// Prints how far the work is: every two seconds, or whenever another `interval` documents are done.
class Progress {
 public:
  explicit Progress(std::int64_t interval) : interval_(interval), console_(stderr) {}

  void report(const data::PreprocessProgress& progress) {
    if (progress.resumed && !told_) console_.line(str_cat("resumed at document ", progress.resumed_documents));
    told_ = true;
    const auto now = Clock::now();
    const bool due = interval_ > 0 ? progress.documents >= printed_documents_ + interval_
                                   : now >= printed_ + std::chrono::seconds(console_.is_terminal() ? 0 : 2);
    if (!due) return;
    printed_ = now;
    printed_documents_ = progress.documents;
    const std::string line = text(progress) + eta(progress);
    if (console_.is_terminal() && interval_ == 0)
      console_.progress(line);
    else
      console_.line(line);
  }

  std::string text(const data::PreprocessProgress& progress) const {
    char out[160];
    std::snprintf(out, sizeof(out), "Processed %lld documents (%.0f docs/s, %.2f MB/s).",
                  static_cast<long long>(progress.documents),
                  static_cast<double>(progress.documents - progress.resumed_documents) / seconds(),
                  static_cast<double>(progress.bytes - progress.resumed_bytes) / 1e6 / seconds());
    return out;
  }

 private:
  using Clock = std::chrono::steady_clock;

  double seconds() const { return std::max(std::chrono::duration<double>(Clock::now() - start_).count(), 1e-9); }

  /// Share done and time left, by the bytes of the files; nothing where their size is unknown.
  std::string eta(const data::PreprocessProgress& progress) const {
    const std::int64_t done = progress.input_done - progress.resumed_input;
    if (progress.input_size <= 0 || done <= 0) return "";
    const auto left = static_cast<long long>(
        seconds() * static_cast<double>(std::max<std::int64_t>(progress.input_size - progress.input_done, 0)) /
        static_cast<double>(done));
    char out[96];
    std::snprintf(out, sizeof(out), " %.1f%%, ETA %lld:%02lld:%02lld",
                  100.0 * static_cast<double>(progress.input_done) / static_cast<double>(progress.input_size),
                  left / 3600, left / 60 % 60, left % 60);
    return out;
  }

  std::int64_t interval_;
  metrics::Console console_;
  Clock::time_point start_ = Clock::now(), printed_ = start_;
  std::int64_t printed_documents_ = 0;
  bool told_ = false;
};

void print_skipped(const data::PreprocessProgress& result) {
  std::int64_t total = 0;
  std::string kinds;
  for (const auto& item : result.skipped) {
    total += item.second;
    kinds += str_cat(kinds.empty() ? "" : ", ", item.second, " ", item.first);
  }
  if (total == 0) return;
  for (const std::string& line : result.skipped_lines) std::fprintf(stderr, "skipped %s\n", line.c_str());
  std::printf("%lld bad lines skipped: %s\n", static_cast<long long>(total), kinds.c_str());
}

void print_tokenizer(const tokenizer::Tokenizer& tokenizer) {
  const auto id = [](const std::optional<std::int64_t>& value) { return value ? std::to_string(*value) : "none"; };
  std::printf("tokenizer %s: %lld ids, bos %s, eod %s, pad %s\n", std::string(tokenizer.type()).c_str(),
              static_cast<long long>(tokenizer.vocab_size()), id(tokenizer.bos()).c_str(), id(tokenizer.eod()).c_str(),
              tokenizer.pad() < 0 ? "none" : std::to_string(tokenizer.pad()).c_str());
}

void print_result(const Request& request, const data::PreprocessProgress& result, const Progress& progress) {
  std::printf("%s\n", progress.text(result).c_str());
  std::printf("%lld documents, %lld empty, %lld tokens, %s end-of-document ids\n",
              static_cast<long long>(result.documents), static_cast<long long>(result.empty_documents),
              static_cast<long long>(result.tokens), request.config.append_eod ? "with" : "without");
  print_skipped(result);
  for (const std::string& key : request.config.json_keys) {
    const std::string prefix = data::output_name(request.config.output_prefix, key);
    std::printf("wrote %s.bin and .idx (--data-path %s)\n", prefix.c_str(), prefix.c_str());
  }
}

}  // namespace

int run_preprocess(Arguments args) {
  Request request;
  ArgumentParser parser;
  add_rows(parser, request);
  std::vector<std::string> errors = parser.parse(args);
  if (request.help) {
    std::printf("%s%s\n", kHelp, tokenizer_arguments_help().c_str());
    return 0;
  }
  if (request.config.inputs.empty()) errors.emplace_back("--input: is required");
  if (request.config.output_prefix.empty()) errors.emplace_back("--output-prefix: is required");
  const auto tokenizer = request.tokenizer.create(parser, errors);
  if (!errors.empty()) return refuse(errors);
  request.config.workers = static_cast<int>(std::min<std::int64_t>(request.workers, 1024));
  request.config.resume_bytes = request.resume_megabytes * 1'000'000;
  request.config.encode = request.tokenizer.encode_options();
  print_tokenizer(*tokenizer);
  Progress progress(request.log_interval);
  const auto result = data::preprocess(request.config, *tokenizer,
                                       [&](const data::PreprocessProgress& done) { progress.report(done); });
  print_result(request, result, progress);
  return 0;
}

}  // namespace megatron::cli
