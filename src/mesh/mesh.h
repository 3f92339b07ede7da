// Where a rank stands on each axis, its groups, and the bundle of things that belong to one rank.
#pragma once

#include "comm/world.h"
#include "kernels/executor.h"
#include "mesh/group.h"
#include "spec/parallel_spec.h"

namespace megatron::mesh {

/// The groups of one rank, named as Megatron names them; members in Megatron's rank order (spec/rank_order.h).
struct Mesh {
  int rank = 0, world_size = 1;
  Group tp, dp, pp;
  /// First and last stage of this rank's pipeline (size 1 inside the pipeline or with one stage): the tied table.
  Group embedding;
  /// All ranks that hold parts of the same model replica (tp × pp).
  Group model;
  Group world;

  bool is_first_stage() const { return pp.rank() == 0; }
  bool is_last_stage() const { return pp.rank() == pp.size() - 1; }
};

/// Creates the groups; collective over the world. `parallel` is complete (data_parallel derived).
Mesh create_mesh(comm::RankContext& context, const spec::ParallelSpec& parallel);

/// What one rank owns while it runs. Executor, mesh and context outlive it.
struct Rank {
  comm::RankContext& context;
  kernels::Executor& exec;
  Mesh& mesh;
};

}  // namespace megatron::mesh
