// Runs test code on ranks: as threads of this process, or one rank of a counted world on meta tensors.
#pragma once

#include <functional>
#include <memory>

#include "comm/world.h"
#include "mesh/mesh.h"

namespace megatron::testing {

/// A local world of `n` thread ranks; rethrows what a rank threw. Without noise on stderr.
inline void run_ranks(int n, const std::function<void(comm::RankContext&)>& fn, std::uint64_t perturb_seed = 0) {
  comm::WorldOptions options;
  options.world_size = n;
  options.timeout_seconds = 120;
  options.perturb_seed = perturb_seed;
  options.print_failure = false;
  comm::create_local_world(options)->run(fn);
}

/// Makes what belongs to one rank (allocator, executor, mesh) and calls fn with it.
inline void with_rank(comm::RankContext& context, const spec::ParallelSpec& parallel, Device device, int threads,
                      const std::function<void(mesh::Rank&)>& fn) {
  kernels::Executor exec(tensor::Allocator::create(device), threads, /*spin=*/0);
  mesh::Mesh mesh = mesh::create_mesh(context, parallel);
  mesh::Rank rank = {context, exec, mesh};
  fn(rank);
}

/// A complete ParallelSpec: world = tp·pp·dp.
inline spec::ParallelSpec make_parallel(int tp, int pp = 1, int dp = 1, bool sequence_parallel = false) {
  spec::ParallelSpec parallel;
  parallel.world_size = tp * pp * dp;
  parallel.tensor_parallel = tp;
  parallel.pipeline_parallel = pp;
  parallel.data_parallel = dp;
  parallel.sequence_parallel = sequence_parallel;
  return parallel;
}

/// All ranks of the layout as threads.
inline void run_mesh(const spec::ParallelSpec& parallel, const std::function<void(mesh::Rank&)>& fn, int threads = 1,
                     std::uint64_t perturb_seed = 0) {
  run_ranks(
      parallel.world_size, [&](comm::RankContext& context) { with_rank(context, parallel, Device::cpu, threads, fn); },
      perturb_seed);
}

/// One rank of the layout on meta tensors in the null world.
inline void run_meta(const spec::ParallelSpec& parallel, int rank, const std::function<void(mesh::Rank&)>& fn) {
  comm::WorldOptions options;
  options.world_size = parallel.world_size;
  comm::create_null_world(options, rank)->run([&](comm::RankContext& context) {
    with_rank(context, parallel, Device::meta, 1, fn);
  });
}

}  // namespace megatron::testing
