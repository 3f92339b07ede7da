#include "tokenizer/base64.h"

#include <cstdint>

namespace megatron::tokenizer {
namespace {

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> from_base64(std::string_view text, std::size_t* bad) {
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const std::size_t digits = text.size() - padding;
  std::string bytes;
  bytes.reserve(digits / 4 * 3 + 2);
  std::uint32_t bits = 0;
  const auto refuse = [bad](std::size_t at) {
    if (bad != nullptr) *bad = at;
    return std::nullopt;
  };
  for (std::size_t i = 0; i < digits; ++i) {
    const int digit = digit_of(text[i]);
    if (digit < 0) return refuse(i);
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 > 0) bytes += static_cast<char>(static_cast<unsigned char>(bits >> (6 - 2 * (i % 4)) & 0xff));
  }
  if (text.size() % 4 != 0) return refuse(text.size());
  return bytes;
}

}  // namespace megatron::tokenizer
