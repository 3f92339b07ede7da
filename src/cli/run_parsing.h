// What commands that make a world share: who prints, and which status an error has.
#pragma once

#include <optional>

#include "base/check.h"

namespace megatron::cli {

/// Processes that mpirun or srun started; nothing without a launcher.
std::optional<int> launcher_size();
/// True without a launcher, and in the first of the processes that one started. Known before any communication.
bool is_first_process();
/// 2 configuration, 3 communication, 1 everything else.
int exit_status(const std::exception& error);

}  // namespace megatron::cli
