// Measures collectives of thread ranks beside the limit of the shared memory that they run in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron::comm {

struct CommTiming {
  std::string operation;     // all_reduce, all_gather, reduce_scatter, send
  std::int64_t bytes = 0;    // of the whole tensor (float32)
  double seconds = 0;        // best of the repeats, from the first rank's start to the last rank's end
  double limit_seconds = 0;  // the same threads moving the same bytes by plain loops, best of the repeats
};

/// Each operation with tensors of each of `bytes` (rounded up to whole rows per rank) over `world_size` ≥ 2 thread
/// ranks. The limit of all_reduce: rank r adds part r of all inputs and writes it into all outputs; of reduce_scatter:
/// into its own; of all_gather: every rank copies all parts; of send: rank 1 copies what rank 0 has.
std::vector<CommTiming> bench_collectives(int world_size, const std::vector<std::int64_t>& bytes, int repeats = 20);

}  // namespace megatron::comm
