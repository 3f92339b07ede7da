// The Unicode classes that splitting needs, one byte per code point, and reading characters out of UTF-8.
// Immutable and shared by threads; some 40 KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace megatron::tokenizer {

class CharClasses {
 public:
  /// Bits of a class. A character without any is punctuation, a symbol, a control character or not assigned.
  static constexpr std::uint8_t kLetter = 1;       // L
  static constexpr std::uint8_t kNumber = 2;       // N
  static constexpr std::uint8_t kSpace = 4;        // White_Space
  static constexpr std::uint8_t kMark = 8;         // M
  static constexpr std::uint8_t kUpper = 16;       // Lu, Lt
  static constexpr std::uint8_t kLower = 32;       // Ll
  static constexpr std::uint8_t kCaseless = 64;    // Lm, Lo
  static constexpr std::uint8_t kLineBreak = 128;  // \r and \n

  struct Char {
    std::size_t length = 1;  // bytes
    std::uint8_t bits = 0;
  };

  CharClasses();

  std::uint8_t of(std::uint32_t code_point) const {
    return code_point < 0x110000 ? classes_[blocks_[code_point >> 8] + (code_point & 0xff)] : 0;
  }
  /// The character at text[at]; a byte that begins no well-formed character is one of no class.
  Char at(std::string_view text, std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) return {1, classes_[byte]};
    return beyond_ascii(text, at);
  }

 private:
  Char beyond_ascii(std::string_view text, std::size_t at) const;

  std::vector<std::uint32_t> blocks_;  // of each 256 code points: where their classes begin
  std::vector<std::uint8_t> classes_;  // the first 128 are those of ASCII
};

/// Reads the well-formed UTF-8 character at text[at] into `code_point`; returns its bytes, 0 if there is none.
inline std::size_t read_character(std::string_view text, std::size_t at, std::uint32_t& code_point) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const std::size_t left = text.size() - at;
  const std::uint32_t first = byte(0);
  if (first < 0x80) {
    code_point = first;
    return 1;
  }
  if (first < 0xc2 || first > 0xf4) return 0;
  if (first < 0xe0) {
    if (left < 2 || !tail(1)) return 0;
    code_point = (first & 0x1f) << 6 | (byte(1) & 0x3fU);
    return 2;
  }
  if (first < 0xf0) {
    if (left < 3 || !tail(1) || !tail(2)) return 0;
    code_point = (first & 0x0f) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU);
    return code_point < 0x800 || (code_point >= 0xd800 && code_point < 0xe000) ? 0 : 3;
  }
  if (left < 4 || !tail(1) || !tail(2) || !tail(3)) return 0;
  code_point = (first & 0x07) << 18 | (byte(1) & 0x3fU) << 12 | (byte(2) & 0x3fU) << 6 | (byte(3) & 0x3fU);
  return code_point < 0x10000 || code_point > 0x10ffff ? 0 : 4;
}

}  // namespace megatron::tokenizer
