// config.json of a Hugging Face model folder → spec::ModelSpec. What would change the maths and is not known is
// refused.
#pragma once

#include <cstdint>
#include <string>

#include "spec/model_spec.h"

namespace megatron::interop {

enum class HuggingFaceFamily : std::uint8_t { gpt2, llama };

struct HuggingFaceConfig {
  HuggingFaceFamily family = HuggingFaceFamily::llama;
  /// Sizes and kinds; lengths are the number of positions. padded_vocab_size is left to the run's derivation.
  spec::ModelSpec model;
};

/// Reads both spellings: `rope_parameters` (recent) or `rope_theta` with `rope_scaling` (what most published files
/// have). Throws IoError where `text` is no JSON object, ConfigError naming `path` and every key that is missing, of
/// the wrong type, unknown, or of a value that is not supported (other architectures, sliding windows, unknown kinds of
/// rope or activation, scaled attention …).
HuggingFaceConfig parse_huggingface_config(const std::string& text, const std::string& path);

}  // namespace megatron::interop
