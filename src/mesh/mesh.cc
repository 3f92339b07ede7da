#include "mesh/mesh.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "spec/rank_order.h"

namespace megatron::mesh {
namespace {

/// A group of one is never created: it costs nothing and takes part in no operation.
Group make_group(comm::RankContext& context, const std::string& name, std::vector<int> members) {
  if (members.size() < 2) return Group();
  // Along one axis members ascend in any rank order; a group over several axes may not.
  std::sort(members.begin(), members.end());
  return Group(context.create_group(name, members));
}

/// First and last stage of this rank's pipeline; nothing for the stages between.
std::vector<int> embedding_members(const spec::RankOrder& order, const spec::StagePlacement& placement, int rank) {
  if (placement.rank_of(placement.num_stages() - 1) == placement.rank_of(0)) return {rank};
  for (const std::vector<int>& group : order.embedding_groups())
    if (std::find(group.begin(), group.end(), rank) != group.end()) return group;
  return {rank};
}

}  // namespace

Mesh create_mesh(comm::RankContext& context, const spec::ParallelSpec& parallel) {
  const spec::RankOrder order = spec::dense_order(parallel);
  MEGATRON_CHECK_EQ(order.world_size(), context.world_size(), "ranks of the layout and of the world");
  Mesh mesh;
  mesh.rank = context.rank();
  mesh.world_size = context.world_size();
  mesh.placement = parallel.placement();
  mesh.tp = make_group(context, "tp", order.group_of(mesh.rank, "tp"));
  mesh.dp = make_group(context, "dp", order.group_of(mesh.rank, "dp"));
  mesh.pp = make_group(context, "pp", order.group_of(mesh.rank, "pp"));
  mesh.embedding = make_group(context, "embedding", embedding_members(order, mesh.placement, mesh.rank));
  mesh.model = make_group(context, "model", order.group_of(mesh.rank, "tp-pp"));
  std::vector<int> everyone(static_cast<std::size_t>(mesh.world_size));
  for (int r = 0; r < mesh.world_size; ++r) everyone[static_cast<std::size_t>(r)] = r;
  mesh.world = make_group(context, "world", std::move(everyone));
  return mesh;
}

}  // namespace megatron::mesh
