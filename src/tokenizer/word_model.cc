#include "tokenizer/word_model.h"

#include "base/check.h"

namespace megatron::tokenizer {

FallbackBytes::FallbackBytes(const Vocabulary& vocabulary) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t b = 0; b < 256; ++b) ids_[b] = vocabulary.find(str_cat("<0x", kHex[b >> 4], kHex[b & 15], ">"));
}

}  // namespace megatron::tokenizer
