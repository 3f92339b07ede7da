// What the ranks of a run hold in memory, by kind, from the description alone.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/block_shape.h"
#include "spec/run_spec.h"

namespace megatron::spec {

/// Bytes of one rank (all of a pipeline rank are alike), its virtual stages together. Not counted:
/// activations within a pass, scratch of kernels, gaps of the gradient buffer, rotary tables.
struct RankMemory {
  std::int64_t parameters = 0;
  std::int64_t main_parameters = 0;  // float32 weights beside 16-bit ones
  std::int64_t gradients = 0;        // one per use of a tied table
  std::int64_t optimizer = 0;        // moments: two with Adam, one with Lion, Muon and SGD (none without momentum)
  std::int64_t stash = 0;            // of all micro-batches in flight
  std::int64_t communication = 0;    // largest collective of the tensor axis, stage messages
  std::int64_t total() const { return parameters + main_parameters + gradients + optimizer + stash + communication; }
};

/// Stashes, each of one micro-batch on one virtual stage, that a pipeline rank holds at one time under the run's
/// schedule.
std::int64_t live_chunk_stashes(const RunSpec& run, int pipeline_rank);
/// One entry per pipeline rank; the run must be complete and its layout divide the model (throws otherwise).
std::vector<RankMemory> memory_per_rank(const RunSpec& run);

}  // namespace megatron::spec
