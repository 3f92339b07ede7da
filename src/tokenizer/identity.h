// What makes two tokenizers that were read from files equal: their options and a digest of the files' content.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace megatron::tokenizer {

/// The whole file. Throws IoError "--option PATH: reason" when it cannot be read.
std::string read_tokenizer_file(std::string_view option, const std::string& path);

/// 32 hexadecimal digits (XXH3, 128 bits) of the parts and where they end.
std::string content_digest(std::span<const std::string_view> parts);

/// identity_json of a tokenizer of this type made from files: {"type", "files", options, "content"}. `options` holds
/// only what this type reads, so that an option meant for another type changes no identity. Files are kept as absolute
/// paths.
std::string identity_of_files(std::string_view type, const TokenizerOptions& options, std::string_view content);

/// The options that an identity holds. Throws ConfigError if a value has the wrong kind.
TokenizerOptions options_of_identity(std::string_view identity);

}  // namespace megatron::tokenizer
