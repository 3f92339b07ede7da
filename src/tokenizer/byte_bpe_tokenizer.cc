#include "tokenizer/byte_bpe_tokenizer.h"

#include <algorithm>

#include "base/check.h"

namespace megatron::tokenizer {

ByteBpeTokenizer::ByteBpeTokenizer(Parts parts)
    : type_(std::move(parts.type)),
      bpe_(std::move(parts.bpe)),
      splitter_(make_splitter(parts.pattern, SplitBehavior::isolated)),
      special_(std::move(parts.special)),
      bos_(parts.bos),
      eod_(parts.eod),
      pad_(parts.pad),
      vocab_size_(static_cast<std::int64_t>(bpe_.size())),
      identity_(std::move(parts.identity)) {
  for (const auto& token : special_.tokens()) vocab_size_ = std::max(vocab_size_, token.second + 1);
}

void ByteBpeTokenizer::encode(std::string_view text, std::vector<std::int64_t>& ids) const {
  bpe_.encode(text, *splitter_, ids);
}

void ByteBpeTokenizer::encode_special(std::string_view text, std::vector<std::int64_t>& ids) const {
  std::size_t at = 0;
  while (const auto marker = special_.find(text, at)) {
    bpe_.encode(text.substr(at, marker->begin - at), *splitter_, ids);
    ids.push_back(marker->id);
    at = marker->end;
  }
  bpe_.encode(text.substr(at), *splitter_, ids);
}

std::string_view ByteBpeTokenizer::bytes_of(std::int64_t id) const {
  if (id < 0 || id >= vocab_size_)
    throw Error(str_cat("token id ", id, " is outside the vocabulary [0, ", vocab_size_, ")"));
  const auto place = static_cast<std::size_t>(id);
  if (place < bpe_.size() && !bpe_.bytes(place).empty()) return bpe_.bytes(place);
  return special_.text_of(id).value_or("");
}

std::string ByteBpeTokenizer::decode(std::span<const std::int64_t> ids, std::string_view eod_text) const {
  std::string text;
  for (const std::int64_t id : ids) {
    if (eod_ && id == *eod_)
      text += eod_text;
    else
      text += bytes_of(id);
  }
  return text;
}

std::string ByteBpeTokenizer::piece(std::int64_t id) const { return std::string(bytes_of(id)); }

}  // namespace megatron::tokenizer
