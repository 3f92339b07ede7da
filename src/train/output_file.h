// Files that a run will write: whether it can, before anything has been trained.
#pragma once

#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace megatron::train {

/// Throws IoError naming `option`, path and the system's reason where `path` cannot be opened for writing. Leaves
/// everything as it was.
void check_writable(const char* option, const std::string& path);
/// What is wrong with the files that a run writes beside its checkpoints, one line each.
std::vector<std::string> output_problems(const spec::RunSpec& run);

}  // namespace megatron::train
