// What commands that make a world share: who prints, and which options they take.
#pragma once

#include <atomic>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/exit_status.h"
#include "config/parse.h"

namespace megatron::cli {

/// Processes that mpirun or srun started; nothing without a launcher.
std::optional<int> launcher_size();
/// True without a launcher, and in the first of the processes that one started. Known before any communication.
bool is_first_process();
/// For an error that every process of a launcher meets alike: the first process throws it on, so that it is told once.
/// The others wait until the launcher ends them (`signal` becomes ≠ 0, or the signal strikes) and return the status; if
/// that does not happen within two seconds the error was theirs alone, and they tell it. Call it in a catch block.
int tell_once(const std::exception& error, const std::atomic<int>* signal = nullptr);

/// The run's notices on standard error, by the first process.
void print_notices(const config::ParsedRun& parsed);

/// Adds to the errors of a training run what is wrong with its --inject-fault. Ranks and iterations are compared only
/// where nothing else is wrong.
void check_faults(config::ParsedRun& parsed);

/// For commands whose model and data come from elsewhere: throws a ConfigError with `reason` that names every option
/// of a run in `parsed` but layout, threads, backend and timeouts (topic Parallelism), --seed, --inject-fault and
/// `also`.
void refuse_described_options(const config::ParsedRun& parsed, std::initializer_list<std::string_view> also,
                              const std::string& reason);

}  // namespace megatron::cli
