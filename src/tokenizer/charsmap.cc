#include "tokenizer/charsmap.h"

#include <cstring>

#include "base/check.h"

namespace megatron::tokenizer {

std::optional<Charsmap> Charsmap::read(std::string_view bytes, std::string& why) {
  const auto refuse = [&why](std::string reason) {
    why = std::move(reason);
    return std::nullopt;
  };
  std::uint32_t size = 0;
  if (bytes.size() < 4) return refuse("is cut off: no size of the table");
  std::memcpy(&size, bytes.data(), 4);
  if (size % 4 != 0 || size == 0 || size > bytes.size() - 4)
    return refuse(str_cat("is damaged: a table of ", size, " bytes in ", bytes.size() - 4));
  Charsmap map;
  map.units_.resize(size / 4);
  std::memcpy(map.units_.data(), bytes.data() + 4, size);
  map.texts_ = bytes.substr(4 + size);
  if (!map.texts_.empty() && map.texts_.back() != '\0') return refuse("is damaged: the last replacement has no end");
  return map;
}

}  // namespace megatron::tokenizer
