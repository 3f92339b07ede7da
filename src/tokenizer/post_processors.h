// Which ids HuggingFace's tokenizer.json puts around a text: its `post_processor` section.
#pragma once

#include <cstdint>

#include "tokenizer/json_node.h"
#include "tokenizer/tokenizer.h"

namespace megatron::tokenizer {

/// Nothing for a JSON null. Known types: TemplateProcessing (its template for one text) ByteLevel BertProcessing
/// RobertaProcessing Sequence; everything else, and ids outside [0, vocab_size), are refused by name and place.
EndMarks read_post_processor(const JsonNode& node, std::int64_t vocab_size);

}  // namespace megatron::tokenizer
