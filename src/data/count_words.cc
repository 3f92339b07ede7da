#include "data/count_words.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "base/check.h"
#include "base/thread_pool.h"
#include "data/corpus.h"

namespace megatron::data {
namespace {

/// One worker's counts, and the first bad line it met in a round.
class Counter {
 public:
  explicit Counter(const CountWordsConfig& config, const tokenizer::Splitter& splitter)
      : strings_(config.json_keys), splitter_(splitter) {}

  /// The number of lines in the block, or of those up to the bad one.
  std::int64_t add_block(const LineBlock& block, std::optional<std::string>& error) {
    std::int64_t lines = 0;
    try {
      std::string_view rest = block.text;
      while (!rest.empty()) {
        const std::size_t end = rest.find('\n');
        const std::string_view line = rest.substr(0, end == std::string_view::npos ? end : end + 1);
        rest.remove_prefix(line.size());
        ++lines;
        if (block.kind == CorpusKind::text) {
          add(line);
        } else if (line.find_first_not_of(" \t\r\n") != std::string_view::npos) {
          for_each_line(line, [&](std::string_view object) {
            strings_.read(object, texts_);
            for (const std::string& text : texts_) add(text);
          });
        }
      }
    } catch (const std::exception& bad) {
      error = bad.what();
    }
    return lines;
  }

  const tokenizer::WordCounts& counts() const { return counts_; }

 private:
  void add(std::string_view text) {
    std::array<tokenizer::Piece, 64> pieces;
    std::size_t at = 0;
    while (const std::size_t count = splitter_.next(text, at, pieces))
      for (std::size_t i = 0; i < count; ++i)
        counts_.add(text.substr(pieces[i].begin, pieces[i].end - pieces[i].begin));
  }

  JsonStrings strings_;
  std::vector<std::string> texts_;
  const tokenizer::Splitter& splitter_;
  tokenizer::WordCounts counts_;
};

}  // namespace

tokenizer::WordCounts count_words(const CountWordsConfig& config, const tokenizer::Splitter& splitter,
                                  const std::function<void(std::int64_t bytes)>& report) {
  if (config.inputs.empty()) throw ConfigError("--input: no file is given");
  const int workers = std::max(config.workers, 1);
  BlockReader reader(config.inputs, config.block_bytes);
  ThreadPool pool(workers, /*spin=*/0);
  std::deque<Counter> counters;
  for (int worker = 0; worker < workers; ++worker) counters.emplace_back(config, splitter);
  struct Round {
    LineBlock block;
    std::int64_t lines = 0;
    std::optional<std::string> error;
  };
  std::vector<Round> rounds(4 * static_cast<std::size_t>(workers));
  std::size_t current_file = 0;
  std::int64_t line = 0;
  for (;;) {
    std::size_t count = 0;
    while (count < rounds.size() && reader.next(rounds[count].block)) ++count;
    if (count == 0) break;
    pool.parallel_for(static_cast<std::int64_t>(count), [&](std::int64_t i, int worker) {
      Round& round = rounds[static_cast<std::size_t>(i)];
      round.lines = counters[static_cast<std::size_t>(worker)].add_block(round.block, round.error);
    });
    for (std::size_t i = 0; i < count; ++i) {
      if (rounds[i].block.file != current_file) line = 0;
      current_file = rounds[i].block.file;
      line += rounds[i].lines;
      if (rounds[i].error) throw IoError(str_cat(reader.path(current_file), ":", line, ": ", *rounds[i].error));
    }
    if (report) report(reader.bytes_read());
  }
  tokenizer::WordCounts all = counters.front().counts();
  for (std::size_t i = 1; i < counters.size(); ++i) all.add(counters[i].counts());
  return all;
}

}  // namespace megatron::data
