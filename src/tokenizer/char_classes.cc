#include "tokenizer/char_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>

namespace megatron::tokenizer {
namespace {

bool is_white_space(std::uint32_t c) {
  return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::uint8_t bits_of(std::uint32_t code_point) {
  std::uint8_t bits = is_white_space(code_point) ? CharClasses::kSpace : 0;
  if (code_point == '\r' || code_point == '\n') bits |= CharClasses::kLineBreak;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return bits | CharClasses::kLetter | CharClasses::kUpper;
    case UTF8PROC_CATEGORY_LL:
      return bits | CharClasses::kLetter | CharClasses::kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return bits | CharClasses::kLetter | CharClasses::kCaseless;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return bits | CharClasses::kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return bits | CharClasses::kNumber;
    default:
      return bits;
  }
}

}  // namespace

CharClasses::CharClasses() {
  using Block = std::array<std::uint8_t, 256>;
  std::map<Block, std::uint32_t> known;
  for (std::uint32_t first = 0; first < 0x110000; first += 256) {
    Block block{};
    // Planes 4 to 13 hold nothing, 15 and 16 are for private use.
    if (first < 0x40000 || (first >= 0xe0000 && first < 0xf0000))
      for (std::uint32_t i = 0; i < 256; ++i) block[i] = bits_of(first + i);
    const auto [place, is_new] = known.emplace(block, static_cast<std::uint32_t>(classes_.size()));
    if (is_new) classes_.insert(classes_.end(), block.begin(), block.end());
    blocks_.push_back(place->second);
  }
}

CharClasses::Char CharClasses::beyond_ascii(std::string_view text, std::size_t at) const {
  std::uint32_t code_point = 0;
  const std::size_t length = read_character(text, at, code_point);
  if (length == 0) return {1, 0};
  return {length, of(code_point)};
}

}  // namespace megatron::tokenizer
