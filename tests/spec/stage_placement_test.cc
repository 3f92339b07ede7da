#include "spec/stage_placement.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace megatron::spec {
namespace {

TEST(StagePlacement, LinearPutsStagesRoundTheRanks) {
  const StagePlacement placement{4, 3, PlacementKind::linear};
  EXPECT_EQ(placement.num_stages(), 12);
  EXPECT_EQ(placement.rank_of(5), 1);
  EXPECT_EQ(placement.chunk_of(5), 1);
  EXPECT_EQ(placement.rank_of(11), 3);
}

TEST(StagePlacement, VFoldsThePipelineBackToRankZero) {
  const StagePlacement placement{4, 2, PlacementKind::v};
  EXPECT_EQ(placement.rank_of(3), 3);
  EXPECT_EQ(placement.rank_of(4), 3);
  EXPECT_EQ(placement.rank_of(7), 0);
  EXPECT_EQ(placement.stage_of(0, 1), 7);
}

TEST(StagePlacement, EveryStageHasOnePlace) {
  for (const PlacementKind kind : {PlacementKind::linear, PlacementKind::v})
    for (int ranks = 1; ranks <= 6; ++ranks)
      for (int chunks = kind == PlacementKind::v ? 2 : 1; chunks <= (kind == PlacementKind::v ? 2 : 4); ++chunks) {
        const StagePlacement placement{ranks, chunks, kind};
        std::set<std::pair<int, int>> places;
        for (int stage = 0; stage < placement.num_stages(); ++stage) {
          const int rank = placement.rank_of(stage), chunk = placement.chunk_of(stage);
          EXPECT_EQ(placement.stage_of(rank, chunk), stage);
          EXPECT_TRUE(rank >= 0 && rank < ranks);
          places.emplace(rank, chunk);
        }
        EXPECT_EQ(static_cast<int>(places.size()), placement.num_stages());
      }
}

}  // namespace
}  // namespace megatron::spec
