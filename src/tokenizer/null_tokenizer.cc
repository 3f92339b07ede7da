#include "tokenizer/null_tokenizer.h"

#include <charconv>

#include "base/check.h"

namespace megatron::tokenizer {
namespace {

constexpr std::string_view kWhitespace = " \t\n\v\f\r";

}  // namespace

NullTokenizer::NullTokenizer(std::int64_t vocab_size, std::optional<std::int64_t> eod, std::optional<std::int64_t> pad)
    : vocab_size_(vocab_size), eod_(eod.value_or(vocab_size - 1)), pad_(pad.value_or(-1)) {
  if (vocab_size < 1) throw ConfigError(str_cat("--vocab-size ", vocab_size, ": must be at least 1"));
  if (*eod_ < 0) eod_.reset();
  if (eod_ && *eod_ >= vocab_size)
    throw ConfigError(str_cat("--null-tokenizer-eod-id ", *eod_, ": outside the vocabulary; at most ", vocab_size - 1));
  if (pad_ < -1) pad_ = -1;
}

void NullTokenizer::encode(std::string_view text, std::vector<std::int64_t>& ids) const {
  std::size_t at = text.find_first_not_of(kWhitespace);
  while (at != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(kWhitespace, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    std::int64_t id = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size())
      throw Error(str_cat("'", word.substr(0, 40), "' is not a token id"));
    if (id < 0 || id >= vocab_size_)
      throw Error(str_cat("token id ", id, " is outside the vocabulary [0, ", vocab_size_, ")"));
    ids.push_back(id);
    at = text.find_first_not_of(kWhitespace, end);
  }
}

std::string NullTokenizer::decode(std::span<const std::int64_t> ids, std::string_view eod_text) const {
  std::string text;
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= vocab_size_)
      throw Error(str_cat("token id ", id, " is outside the vocabulary [0, ", vocab_size_, ")"));
    if (!text.empty()) text += ' ';
    if (eod_ && id == *eod_ && !eod_text.empty())
      text += eod_text;
    else
      text += std::to_string(id);
  }
  return text;
}

std::string NullTokenizer::identity_json() const {
  return str_cat(R"({"type":"NullTokenizer","vocab_size":)", vocab_size_, R"(,"eod_id":)", eod_.value_or(-1),
                 R"(,"pad_id":)", pad_, "}");
}

}  // namespace megatron::tokenizer
