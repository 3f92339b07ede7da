// Measures collectives of thread ranks beside the limit of the shared memory that they run in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron::comm {

/// Times run from the first rank's start to the last rank's end.
struct CommTiming {
  std::string operation;      // all_reduce, reduce_scatter, all_gather, send
  std::int64_t bytes = 0;     // of the whole tensor (float32)
  double seconds = 0;         // best of the repeats
  double limit_seconds = 0;   // the same threads moving the same bytes by plain loops, best of the repeats
  double median_seconds = 0;  // of the repeats
  double median_limit_seconds = 0;
};

/// Each operation with tensors of each of `bytes` (rounded up to whole rows per rank) over `world_size` ≥ 2 thread
/// ranks.
///
/// The limit is what shared memory allows without any agreement between the threads, and has the operation's memory:
///   all_reduce      rank r adds part r of all tensors and writes it into all of them: in place, as the operation, so
///                   that either reads and writes each byte of each tensor once and no line is fetched only to be
///                   overwritten
///   reduce_scatter  rank r adds part r of all tensors into its own result
///   all_gather      every rank copies all parts
///   send            rank 1 copies what rank 0 has
/// Each with ordinary stores and with stores past the caches; the faster one counts, as the best of `repeats`.
///
/// Threads are bound to cores of their own where there are enough. Operation and limit take turns. Before each
/// measurement with tensors of 16 MiB and more all ranks write elsewhere, several times the size of the caches, so
/// nothing is found in a cache. Smaller tensors have just been written by their own rank, as in training, and several
/// of them (256 KiB together, 64 at most) follow each other in one measurement, so that its clock weighs little.
std::vector<CommTiming> bench_collectives(int world_size, const std::vector<std::int64_t>& bytes, int repeats = 20);

}  // namespace megatron::comm
