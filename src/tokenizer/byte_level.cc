#include "tokenizer/byte_level.h"

#include "base/check.h"

namespace megatron::tokenizer {

void ByteLevel::encode(std::string_view text, std::vector<std::int64_t>& ids) const {
  const std::size_t start = ids.size();
  ids.resize(start + text.size());
  for (std::size_t i = 0; i < text.size(); ++i) ids[start + i] = static_cast<unsigned char>(text[i]);
}

std::string ByteLevel::decode(std::span<const std::int64_t> ids, std::string_view eod_text) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int64_t id : ids) {
    if (id == kEod) {
      text += eod_text;
    } else {
      if (id < 0 || id > kEod)
        throw Error(str_cat("token id ", id, " is outside the vocabulary [0, ", kVocabSize, ")"));
      text += static_cast<char>(id);
    }
  }
  return text;
}

std::string ByteLevel::identity_json() const { return R"({"type":"ByteLevel","vocab_size":257,"eod_id":256})"; }

}  // namespace megatron::tokenizer
