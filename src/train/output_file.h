// Files that a run will write: whether it can, before anything has been trained.
#pragma once

#include <string>

namespace megatron::train {

/// Throws IoError naming `option`, path and the system's reason where `path` cannot be opened for writing. Leaves
/// everything as it was.
void check_writable(const char* option, const std::string& path);

}  // namespace megatron::train
