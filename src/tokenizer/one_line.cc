#include "tokenizer/one_line.h"

namespace megatron::tokenizer {

std::string one_line(std::string_view text, std::size_t most) {
  constexpr char kDigits[] = "0123456789abcdef";
  const bool cut = text.size() > most;
  if (cut) {
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
    text = text.substr(0, most);
  }
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f)
      line += c;
    else
      line += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return cut ? line + "..." : line;
}

}  // namespace megatron::tokenizer
