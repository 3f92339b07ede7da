#include "tokenizer/sentencepiece_trainer.h"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <exception>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"

// Exported by the library, but declared in none of its public headers.
namespace sentencepiece::logging {
void SetMinLogLevel(int level);
}

namespace megatron::tokenizer {
namespace {

// The library passes over longer sentences.
constexpr std::size_t kMostBytes = 4192;
// It divides its sums over this many threads whatever the machine has, so the result does not depend on the machine.
constexpr const char* kThreads = "16";
constexpr int kErrorsOnly = 2;

/// The lines of the texts, empty ones left out, as the library takes them.
class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::function<bool(std::string&)>& next_text) : next_text_(next_text) { advance(); }

  bool done() const override { return done_; }
  void Next() override { advance(); }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }
  /// What reading threw; it may not pass through the library.
  std::exception_ptr failure() const { return failure_; }
  bool any() const { return any_; }

 private:
  void advance() {
    try {
      do {
        while (rest_.empty()) {
          if (done_ = !next_text_(text_); done_) return;
          rest_ = text_;
        }
        take();
      } while (sentence_.empty());
      any_ = true;
    } catch (...) {
      failure_ = std::current_exception();
      done_ = true;
    }
  }

  void take() {
    std::string_view probe = rest_;
    const std::string_view line = take_line(probe);
    if (line.size() <= kMostBytes) {
      sentence_ = line;
      rest_ = probe;
      return;
    }
    std::size_t end = kMostBytes;
    while (end > kMostBytes - 4 && (static_cast<unsigned char>(rest_[end]) & 0xc0) == 0x80) --end;
    sentence_ = rest_.substr(0, end);
    rest_.remove_prefix(end);
  }

  const std::function<bool(std::string&)>& next_text_;
  std::string text_, sentence_;
  std::string_view rest_;
  bool done_ = false, any_ = false;
  std::exception_ptr failure_;
};

/// Values of lists are separated by commas, which the library reads as CSV.
std::string csv(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    std::string quoted;
    for (const char c : word) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    out += str_cat(out.empty() ? "" : ",", "\"", quoted, "\"");
  }
  return out;
}

}  // namespace

std::string train_sentencepiece(const SentencePieceTrainerOptions& options,
                                const std::function<bool(std::string&)>& next_text) {
  sentencepiece::logging::SetMinLogLevel(kErrorsOnly);
  std::unordered_map<std::string, std::string> settings = {
      {"model_type", options.model_type},
      {"vocab_size", str_cat(options.vocab_size)},
      {"character_coverage", str_cat(options.character_coverage)},
      {"byte_fallback", options.byte_fallback ? "true" : "false"},
      {"num_threads", kThreads},
      {"max_sentence_length", str_cat(kMostBytes)},
  };
  if (!options.special_tokens.empty()) settings["control_symbols"] = csv(options.special_tokens);
  Sentences sentences(next_text);
  if (sentences.done() && !sentences.failure()) throw ConfigError("the input holds no text");
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &sentences, &model);
  if (sentences.failure()) std::rethrow_exception(sentences.failure());
  if (!status.ok()) throw ConfigError(str_cat("sentencepiece: ", status.ToString()));
  return model;
}

}  // namespace megatron::tokenizer
