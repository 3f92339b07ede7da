// Where the time of recorded steps went, per rank, and how that is printed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/trace.h"

namespace megatron::train {

/// What one rank did under one name. Sums over the recorded steps.
struct ProfileRow {
  SpanKind kind = SpanKind::kernel;
  std::string name;   // of the kernel, the operation or the phase
  std::string group;  // of a communication
  std::int64_t calls = 0;
  std::int64_t own_ns = 0;  // without the spans inside: the rows of a rank add up to its steps
  SpanWork work;

  double seconds() const { return 1e-9 * static_cast<double>(own_ns); }
  /// "matmul_forward", "wait all_reduce tp", "other in forward".
  std::string title() const;
  /// "kernel", "communication", "other".
  const char* category() const;
};

struct RankProfile {
  std::int64_t step_ns = 0;  // of all recorded steps
  std::vector<ProfileRow> rows;
};

/// What the machine gives one rank while all ranks work; 0: not measured.
struct MachineLimits {
  double matmul_flops_per_second = 0;  // square fp32 products
  double copy_bytes_per_second = 0;    // read plus written
};

struct StepProfile {
  std::int64_t first_iteration = 0, num_steps = 0;
  std::vector<RankProfile> ranks;  // by global rank
  MachineLimits limits;
};

/// Roofline: the shortest time for the row's work, max(FLOPs ÷ product rate, bytes ÷ copy rate), ÷ the time it took. 0
/// where it has no work or a limit was not measured; above 1 where operands were in a cache.
double share_of_limit(const ProfileRow& row, const MachineLimits& limits);
/// True where the products limit the row, false where memory does.
bool bound_by_matmul(const ProfileRow& row, const MachineLimits& limits);

/// Equal rows of all ranks added up: what stands in the table. Kernels, communication, the rest; longest first.
std::vector<ProfileRow> rows_of_all_ranks(const StepProfile& profile);

/// The table: mean of the recorded steps and of the ranks, then a line for each of up to 16 ranks.
std::string profile_table(const StepProfile& profile);

}  // namespace megatron::train
