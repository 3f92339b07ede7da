#include "mesh/mesh.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "support/run_ranks.h"

namespace megatron {
namespace {

using testing::make_parallel;

std::vector<int> members(const mesh::Group& group, int self) {
  return group.communicator() == nullptr ? std::vector<int>{self} : group.communicator()->members();
}

// 16 ranks, tp 2, pp 4, dp 2: the worked example of Megatron-LM's parallel_state.py.
TEST(CreateMesh, OrdersAxesAsMegatronDoes) {
  const spec::ParallelSpec parallel = make_parallel(2, 4, 2);
  testing::run_mesh(parallel, [](mesh::Rank& rank) {
    const mesh::Mesh& mesh = rank.mesh;
    const int r = mesh.rank;
    EXPECT_EQ(mesh.world_size, 16);
    EXPECT_EQ(members(mesh.tp, r), (std::vector<int>{r - r % 2, r - r % 2 + 1}));
    const int first = r % 4 < 2 ? r : r - 2;
    EXPECT_EQ(members(mesh.dp, r), (std::vector<int>{first, first + 2}));
    EXPECT_EQ(members(mesh.pp, r), (std::vector<int>{r % 4, r % 4 + 4, r % 4 + 8, r % 4 + 12}));
    const std::vector<int> model =
        r % 4 < 2 ? std::vector<int>{0, 1, 4, 5, 8, 9, 12, 13} : std::vector<int>{2, 3, 6, 7, 10, 11, 14, 15};
    EXPECT_EQ(members(mesh.model, r), model);
    EXPECT_EQ(mesh.holds_first_stage(), r < 4);
    EXPECT_EQ(mesh.holds_last_stage(), r >= 12);
    if (mesh.holds_first_stage() || mesh.holds_last_stage())
      EXPECT_EQ(members(mesh.embedding, r), (std::vector<int>{r % 4, r % 4 + 12}));
    else
      EXPECT_TRUE(mesh.embedding.trivial());
    EXPECT_EQ(mesh.world.size(), 16);
  });
}

TEST(CreateMesh, PutsPipelineBeforeDataOnRequest) {
  spec::ParallelSpec parallel = make_parallel(2, 2, 2);
  parallel.use_tp_pp_dp_mapping = true;
  testing::run_mesh(parallel, [](mesh::Rank& rank) {
    const int r = rank.mesh.rank;
    EXPECT_EQ(members(rank.mesh.pp, r), (std::vector<int>{r & ~2, r | 2}));
    EXPECT_EQ(members(rank.mesh.dp, r), (std::vector<int>{r & ~4, r | 4}));
  });
}

TEST(CreateMesh, CostsNothingForAxesOfOne) {
  testing::run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    for (const mesh::Group* group :
         {&rank.mesh.tp, &rank.mesh.dp, &rank.mesh.pp, &rank.mesh.embedding, &rank.mesh.model, &rank.mesh.world}) {
      EXPECT_TRUE(group->trivial());
      EXPECT_EQ(group->communicator(), nullptr);
      EXPECT_EQ(group->rank(), 0);
    }
    EXPECT_TRUE(rank.mesh.holds_first_stage());
    EXPECT_TRUE(rank.mesh.holds_last_stage());
  });
}

TEST(CreateMesh, RefusesAWorldOfAnotherSize) {
  EXPECT_THROW(testing::run_ranks(3,
                                  [](comm::RankContext& context) {
                                    testing::with_rank(context, make_parallel(2), Device::cpu, 1, [](mesh::Rank&) {});
                                  }),
               Error);
}

}  // namespace
}  // namespace megatron
