#include "mesh/group.h"

#include <gtest/gtest.h>

#include "support/run_ranks.h"

namespace megatron {
namespace {

using testing::make_parallel;

Tensor filled(mesh::Rank& rank, const Shape& shape, float first) {
  Tensor tensor = rank.exec.empty(shape, DType::float32);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data<float>()[i] = first + static_cast<float>(i);
  return tensor;
}

TEST(Group, SumsOverRanks) {
  testing::run_mesh(make_parallel(3), [](mesh::Rank& rank) {
    const Tensor sum = rank.mesh.tp.all_reduce(filled(rank, {4}, 10.0F * static_cast<float>(rank.mesh.rank)), "sum");
    for (int i = 0; i < 4; ++i) EXPECT_EQ(sum.data<float>()[i], 30.0F + 3.0F * static_cast<float>(i));
    const Tensor max =
        rank.mesh.tp.all_reduce(filled(rank, {2}, -static_cast<float>(rank.mesh.rank)), "max", comm::ReduceOp::max);
    EXPECT_EQ(max.data<float>()[0], 0.0F);
    EXPECT_EQ(max.data<float>()[1], 1.0F);
  });
}

TEST(Group, BroadcastsFromItsFirstRank) {
  // Groups of dp: their first rank is not the world's first rank.
  testing::run_mesh(make_parallel(2, 1, 3), [](mesh::Rank& rank) {
    Tensor tensor = filled(rank, {3}, 100.0F * static_cast<float>(rank.mesh.rank));
    rank.mesh.dp.broadcast_from_first_rank(tensor, "values");
    EXPECT_EQ(tensor.data<float>()[2], 100.0F * static_cast<float>(rank.mesh.tp.rank()) + 2.0F);
  });
}

TEST(Group, GathersSeveralTensorsInOneOperation) {
  testing::run_mesh(make_parallel(3), [](mesh::Rank& rank) {
    Tensor counts = rank.exec.empty({1, 2}, DType::int64);
    counts.data<std::int64_t>()[0] = rank.mesh.rank;
    counts.data<std::int64_t>()[1] = 7 * rank.mesh.rank;
    const Tensor nothing = rank.exec.empty({0, 3}, DType::float32);
    const std::vector<Tensor> gathered = rank.mesh.tp.all_gather_coalesced(
        rank.exec.allocator(), {filled(rank, {2, 3}, 10.0F * static_cast<float>(rank.mesh.rank)), counts, nothing},
        "several");
    ASSERT_EQ(gathered.size(), 3U);
    EXPECT_EQ(gathered[0].shape(), (Shape{6, 3}));
    EXPECT_EQ(gathered[1].shape(), (Shape{3, 2}));
    EXPECT_EQ(gathered[2].shape(), (Shape{0, 3}));
    for (int r = 0; r < 3; ++r) {
      for (int i = 0; i < 6; ++i)
        EXPECT_EQ(gathered[0].data<float>()[6 * r + i], 10.0F * static_cast<float>(r) + static_cast<float>(i));
      EXPECT_EQ(gathered[1].data<std::int64_t>()[2 * r], r);
      EXPECT_EQ(gathered[1].data<std::int64_t>()[2 * r + 1], 7 * r);
    }
    const auto& traffic = rank.context.traffic().bytes;
    EXPECT_EQ(traffic.at("tp").size(), 1U);
    EXPECT_EQ(traffic.at("tp").at("all_gather"), 2 * (6 * 4 + 2 * 8));
  });
}

TEST(Group, OfOneGivesBackWhatItGot) {
  testing::run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    const mesh::Group group;
    const Tensor x = filled(rank, {2, 2}, 1.0F);
    EXPECT_EQ(group.all_reduce(x, "x").storage(), x.storage());
    EXPECT_EQ(group.all_gather_coalesced(rank.exec.allocator(), {x}, "x")[0].storage(), x.storage());
    group.broadcast_from_first_rank(x, "x");
    group.barrier("x");
    EXPECT_TRUE(rank.context.traffic().bytes.empty());
  });
}

}  // namespace
}  // namespace megatron
