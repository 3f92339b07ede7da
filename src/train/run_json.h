// The description of a run as JSON, for state.json: what the model is and how it was trained; no layout, no places.
#pragma once

#include <string>

#include "spec/run_spec.h"

namespace megatron::train {

/// One object, keys are Megatron-LM's field names. Equal descriptions give equal text, under every layout (the padded
/// vocabulary is the one of TP 1).
std::string run_to_json(const spec::RunSpec& run);
/// Fills model, optimizer, data (tokenizer), batch (without micro-batches) and seed; throws IoError naming `path` and
/// the field that is missing or has another type.
spec::RunSpec run_from_json(const std::string& text, const std::string& path);

}  // namespace megatron::train
