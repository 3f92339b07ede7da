// Hand-written scanners for the regular expressions of published tokenizers. They match every text from end to end, so
// a piece is a match.
#pragma once

#include <memory>
#include <string_view>

#include "tokenizer/splitter.h"

namespace megatron::tokenizer {

/// The scanner that cuts as `regex` does; null if there is none.
std::unique_ptr<Splitter> make_known_splitter(std::string_view regex);

}  // namespace megatron::tokenizer
