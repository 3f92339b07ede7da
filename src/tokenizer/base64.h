// Base64 (RFC 4648, with padding), as tokenizer files carry bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace megatron::tokenizer {

/// The bytes that `text` stands for. Unset if it is no base64; `bad` is then the first character that cannot stand
/// there, or the text's size where characters are missing.
std::optional<std::string> from_base64(std::string_view text, std::size_t* bad = nullptr);

}  // namespace megatron::tokenizer
