// megatron bench data: text to ids, documents spread over threads.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/thread_pool.h"
#include "cli/argument_parser.h"
#include "cli/bench.h"
#include "cli/tokenizer_arguments.h"
#include "data/corpus.h"

namespace megatron::cli {
namespace {

constexpr std::size_t kLeastDocument = 1024;  // bytes; lines of text are joined until there are so many

/// All documents of the files: strings of JSON Lines, or whole lines of text joined up to 1 KiB and more.
std::vector<std::string> read_documents(const std::vector<std::string>& inputs, const std::string& json_key) {
  std::vector<std::string> documents;
  data::BlockReader reader(inputs);
  data::LineBlock block;
  std::string text;
  while (reader.next(block)) {
    data::for_each_line(block.text, [&](std::string_view line) {
      if (block.kind == data::CorpusKind::json_lines) {
        if (line.find_first_not_of(" \t") != std::string_view::npos)
          documents.push_back(data::json_strings(line, {json_key})[0]);
        return;
      }
      text.append(line).append("\n");
      if (text.size() < kLeastDocument) return;
      documents.push_back(std::move(text));
      text.clear();
    });
  }
  if (!text.empty()) documents.push_back(std::move(text));
  return documents;
}

}  // namespace

int bench_data(Arguments args) {
  std::vector<std::string> inputs;
  std::string json_key = "text";
  std::int64_t threads = 1, megabytes = 100;
  bool json = false;
  TokenizerArguments tokenizer_arguments;
  ArgumentParser parser;
  parser.list("--input", inputs);
  parser.text("--json-key", json_key);
  parser.integer("--threads", threads, 1);
  parser.integer("--megabytes", megabytes, 1);
  parser.flag("--json", json);
  tokenizer_arguments.add_to(parser);
  std::vector<std::string> errors = parser.parse(args);
  if (inputs.empty()) errors.emplace_back("--input: is required");
  if (threads > 512) errors.push_back(str_cat("--threads ", threads, ": must be at most 512"));
  const auto begin_load = std::chrono::steady_clock::now();
  const auto tokenizer = tokenizer_arguments.create(parser, errors);
  if (!errors.empty()) return refuse(errors);
  const auto seconds_since = [](std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double load_seconds = seconds_since(begin_load);
  const std::vector<std::string> documents = read_documents(inputs, json_key);
  std::int64_t bytes_once = 0;
  for (const std::string& document : documents) bytes_once += static_cast<std::int64_t>(document.size());
  if (bytes_once == 0) throw IoError(inputs[0] + ": the input holds no text");
  const std::int64_t rounds = std::max<std::int64_t>(1, megabytes * 1'000'000 / bytes_once);
  const auto count = static_cast<std::int64_t>(documents.size());

  struct alignas(64) Worker {
    std::vector<std::int64_t> ids;
    std::int64_t tokens = 0;
    std::string error;
  };
  std::vector<Worker> workers(static_cast<std::size_t>(threads));
  ThreadPool pool(static_cast<int>(threads), /*spin=*/0);
  constexpr std::int64_t kTogether = 16;  // documents that a thread takes at once
  const tokenizer::EncodeOptions options = tokenizer_arguments.encode_options();
  const auto begin = std::chrono::steady_clock::now();
  pool.parallel_for((rounds * count + kTogether - 1) / kTogether, [&](std::int64_t group, int w) {
    Worker& worker = workers[static_cast<std::size_t>(w)];
    try {
      for (std::int64_t i = group * kTogether; i < std::min((group + 1) * kTogether, rounds * count); ++i) {
        worker.ids.clear();
        tokenizer->encode(documents[static_cast<std::size_t>(i % count)], options, worker.ids);
        worker.tokens += static_cast<std::int64_t>(worker.ids.size());
      }
    } catch (const std::exception& error) {
      worker.error = error.what();
    }
  });
  const double seconds = seconds_since(begin);
  std::int64_t tokens = 0;
  for (const Worker& worker : workers) {
    if (!worker.error.empty()) throw Error(worker.error);
    tokens += worker.tokens;
  }
  print_bench(nlohmann::ordered_json{{"megabytes_per_second", static_cast<double>(rounds * bytes_once) / 1e6 / seconds},
                                     {"tokens", tokens},
                                     {"seconds", seconds},
                                     {"bytes", rounds * bytes_once},
                                     {"documents", rounds * count},
                                     {"threads", threads},
                                     {"load_seconds", load_seconds}},
              json);
  return 0;
}

}  // namespace megatron::cli
