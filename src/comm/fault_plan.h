// Faults to inject, for tests and --inject-fault.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron::comm {

enum class FaultKind : std::uint8_t {
  throw_error,   // an Error on the rank
  delay,         // sleep for `seconds` before the operation
  wrong_count,   // the rank posts one row fewer
  exit_process,  // _Exit(9) of the process
  kill_process,  // kill -9 of the own process
  stop_process,  // SIGSTOP of the own process
  nan,           // the first element of the tensor becomes NaN
};

struct Fault {
  int rank = 0;
  /// The fault strikes at this rank's operation number `operation` (counted from 0 over all groups), or at its first
  /// operation of iteration `iteration` when that is ≥ 0 (iterations are those of RankContext::note_progress).
  std::int64_t operation = 0;
  std::int64_t iteration = -1;
  FaultKind kind = FaultKind::throw_error;
  double seconds = 0.0;
};

struct FaultPlan {
  std::vector<Fault> faults;
};

/// "rank=1,operation=20,kind=throw" or "rank=1,iteration=3,kind=delay,seconds=5"; several are joined by ';'. Kinds:
/// throw, delay, wrong_count, exit, kill, stop, nan. Throws ConfigError naming the bad field.
FaultPlan parse_fault_plan(const std::string& text);

/// Throws ConfigError for a fault that can never strike: of a rank outside the world, or after the last iteration
/// (unset: unknown). Iteration 0 is what comes before the first.
void check_fault_plan(const FaultPlan& plan, int world_size, std::optional<std::int64_t> iterations);

}  // namespace megatron::comm
