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
  /// The ranks that hold first and last stage of this rank's pipeline (size 1 inside the pipeline and where one rank
  /// holds both): the tied table.
  Group embedding;
  /// All ranks that hold parts of the same model replica (tp × pp).
  Group model;
  Group world;

  /// Where the virtual stages of this rank's pipeline stand on the ranks of `pp`.
  spec::StagePlacement placement;

  bool holds_first_stage() const { return placement.rank_of(0) == pp.rank(); }
  bool holds_last_stage() const { return placement.rank_of(placement.num_stages() - 1) == pp.rank(); }
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
