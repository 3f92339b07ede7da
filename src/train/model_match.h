// Is the model of a checkpoint the model of this run?
#pragma once

#include <string>

#include "spec/model_spec.h"

namespace megatron::train {

/// Throws ConfigError with one line per difference: option, value in the checkpoint `where`, value of this run.
/// Compared is what changes shapes or the function that the weights compute; dropout, initialisation and padding may
/// differ. More positions than the checkpoint has are refused for learned positions only.
void check_same_model(const spec::ModelSpec& stored, const spec::ModelSpec& run, const std::string& where);

}  // namespace megatron::train
