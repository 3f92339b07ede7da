// What commands that make a world share: who prints, and which status an error has.
#pragma once

#include <atomic>
#include <optional>

#include "base/check.h"

namespace megatron::cli {

/// Processes that mpirun or srun started; nothing without a launcher.
std::optional<int> launcher_size();
/// True without a launcher, and in the first of the processes that one started. Known before any communication.
bool is_first_process();
/// 2 configuration, 3 communication, 1 everything else.
int exit_status(const std::exception& error);
/// For an error that every process of a launcher meets alike: the first process throws it on, so that it is told once.
/// The others wait until the launcher ends them (`signal` becomes ≠ 0, or the signal strikes) and return the status; if
/// that does not happen within two seconds the error was theirs alone, and they tell it. Call it in a catch block.
int tell_once(const std::exception& error, const std::atomic<int>* signal = nullptr);

}  // namespace megatron::cli
