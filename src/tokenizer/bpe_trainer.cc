#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "tokenizer/byte_bpe.h"

namespace megatron::tokenizer {
namespace {

using Id = std::int32_t;
using Pair = std::pair<Id, Id>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto both = static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.first)) << 32 |
                      static_cast<std::uint32_t>(pair.second);
    return static_cast<std::size_t>(both * 0x9E3779B97F4A7C15ULL >> 17);
  }
};

/// Ids by text, in the order in which tokens were added.
class Vocabulary {
 public:
  /// The id of `text`, which is added if it is new.
  Id id_of(const std::string& text) {
    const auto [it, added] = ids_.emplace(text, static_cast<Id>(tokens_.size()));
    if (added) tokens_.push_back(text);
    return it->second;
  }
  bool has(const std::string& text) const { return ids_.count(text) > 0; }
  const std::string& text(Id id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::int64_t size() const { return std::ssize(tokens_); }
  std::vector<std::string> take() { return std::move(tokens_); }

 private:
  std::unordered_map<std::string, Id> ids_;
  std::vector<std::string> tokens_;
};

/// A pair to be merged in the words that held it when it came to be; its count may have changed since.
struct Candidate {
  Pair pair;
  std::int64_t count = 0;
  std::vector<std::int32_t> words;
  bool operator<(const Candidate& other) const {  // the largest comes first
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
 public:
  Trainer(const WordCounts& words, const BpeTrainerOptions& options) : options_(options) {
    add_first_tokens();
    add_words(words);
    count_pairs();
  }

  TrainedBpe run() {
    while (vocabulary_.size() < options_.vocab_size && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      Candidate top = std::move(heap_.back());
      heap_.pop_back();
      if (const std::int64_t count = counts_[top.pair]; count != top.count) {
        top.count = count;
        push(std::move(top));
        continue;
      }
      if (top.count < 1 || top.count < options_.min_frequency) break;
      merge(top);
    }
    return {vocabulary_.take(), std::move(merges_)};
  }

 private:
  struct Word {
    std::size_t begin = 0, length = 0;  // in symbols_
    std::int64_t count = 0;
  };

  void add_first_tokens() {
    for (const std::string& special : options_.special_tokens) {
      if (special.empty()) throw ConfigError("--special-tokens: an empty name");
      if (vocabulary_.has(special)) throw ConfigError(str_cat("--special-tokens: '", special, "' is named twice"));
      vocabulary_.id_of(special);
    }
    // In the order of their characters: those of Latin-1 come before those from U+0100 on.
    std::array<std::pair<std::string, std::size_t>, 256> bytes;
    for (std::size_t byte = 0; byte < 256; ++byte)
      bytes[byte] = {bytes_to_visible(std::string(1, static_cast<char>(byte))), byte};
    std::sort(bytes.begin(), bytes.end());
    for (const auto& [character, byte] : bytes) byte_ids_[byte] = vocabulary_.id_of(character);
    if (vocabulary_.size() > options_.vocab_size)
      throw ConfigError(str_cat("--vocab-size ", options_.vocab_size, ": cannot hold the 256 bytes and ",
                                options_.special_tokens.size(), " special tokens; nearest: ", vocabulary_.size()));
  }

  void add_words(const WordCounts& words) {
    words_.reserve(words.counts().size());
    for (const auto& [text, count] : words.counts()) {
      words_.push_back({symbols_.size(), text.size(), count});
      for (const char c : text) symbols_.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    }
  }

  void count_pairs() {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (std::size_t i = word.begin; i + 1 < word.begin + word.length; ++i) {
        const Pair pair{symbols_[i], symbols_[i + 1]};
        counts_[pair] += word.count;
        note(pair, static_cast<std::int32_t>(w));
      }
    }
    push_new_pairs();
  }

  /// `pair` came to be in `word`.
  void note(const Pair& pair, std::int32_t word) {
    std::vector<std::int32_t>& words = new_pairs_[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void push(Candidate candidate) {
    heap_.push_back(std::move(candidate));
    std::push_heap(heap_.begin(), heap_.end());
  }

  void push_new_pairs() {
    for (auto& [pair, words] : new_pairs_)
      if (const std::int64_t count = counts_[pair]; count > 0) push({pair, count, std::move(words)});
    new_pairs_.clear();
  }

  void merge(const Candidate& candidate) {
    const Id merged =
        vocabulary_.id_of(vocabulary_.text(candidate.pair.first) + vocabulary_.text(candidate.pair.second));
    merges_.push_back(candidate.pair);
    for (const std::int32_t word : candidate.words) merge_in(word, candidate.pair, merged);
    push_new_pairs();
  }

  void merge_in(std::int32_t index, const Pair& pair, Id merged) {
    Word& word = words_[static_cast<std::size_t>(index)];
    Id* const symbols = symbols_.data() + word.begin;
    std::size_t out = 0;
    const auto change = [&](Id left, Id right, std::int64_t count) {
      counts_[{left, right}] += count;
      if (count > 0) note({left, right}, index);
    };
    for (std::size_t in = 0; in < word.length;) {
      if (in + 1 == word.length || symbols[in] != pair.first || symbols[in + 1] != pair.second) {
        symbols[out++] = symbols[in++];
        continue;
      }
      // What stands left may be a merge of just now: then the pair that goes is (merged, first).
      if (out > 0) {
        change(symbols[out - 1], pair.first, -word.count);
        change(symbols[out - 1], merged, word.count);
      }
      in += 2;
      symbols[out++] = merged;
      if (in < word.length) {
        change(pair.second, symbols[in], -word.count);
        change(merged, symbols[in], word.count);
      }
    }
    word.length = out;
  }

  const BpeTrainerOptions& options_;
  Vocabulary vocabulary_;
  std::array<Id, 256> byte_ids_{};
  std::vector<Id> symbols_;
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<std::int32_t>, PairHash> new_pairs_;  // since push_new_pairs()
  std::vector<Candidate> heap_;
  std::vector<Pair> merges_;
};

}  // namespace

void WordCounts::add(std::string_view word, std::int64_t count) {
  // Nearly every word has been seen before: it is looked up without a copy.
  const auto it = counts_.find(word);
  if (it != counts_.end())
    it->second += count;
  else
    counts_.emplace(word, count);
}

void WordCounts::add(const WordCounts& other) {
  for (const auto& [word, count] : other.counts_) add(word, count);
}

TrainedBpe train_bpe(const WordCounts& words, const BpeTrainerOptions& options) {
  return Trainer(words, options).run();
}

}  // namespace megatron::tokenizer
