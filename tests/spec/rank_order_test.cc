#include "spec/rank_order.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "support/reference_data.h"

namespace megatron::spec {
namespace {

using Groups = std::vector<std::vector<int>>;

TEST(RankOrder, SixteenRanksTp2Pp4) {
  const RankOrder order(kDefaultOrder, {2, 1, 1, 2, 4});
  EXPECT_EQ(order.groups("pp"), (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(order.groups("dp")[2], (std::vector<int>{4, 6}));
  EXPECT_EQ(order.groups("tp-pp"), (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(order.coordinate(13), (AxisValues{1, 0, 0, 0, 3}));
}

TEST(RankOrder, RankAndCoordinateAreInverse) {
  for (std::string_view text : {kDefaultOrder, kPipelineBeforeDataOrder}) {
    const RankOrder order(text, {2, 3, 1, 4, 2}, 100);
    for (int rank = 100; rank < 148; ++rank) EXPECT_EQ(order.rank(order.coordinate(rank)), rank);
  }
}

TEST(RankOrder, GroupOfIsTheGroupThatHoldsTheRank) {
  const RankOrder order(kDefaultOrder, {2, 2, 1, 2, 3});
  for (std::string_view axes : {"tp", "cp", "dp", "pp", "dp-cp", "tp-pp", "tp-dp-cp"}) {
    const Groups all = order.groups(axes);
    for (int rank = 0; rank < order.world_size(); ++rank) {
      const auto group = order.group_of(rank, axes);
      EXPECT_NE(std::find(all.begin(), all.end(), group), all.end()) << axes;
      EXPECT_NE(std::find(group.begin(), group.end(), rank), group.end()) << axes;
    }
  }
}

TEST(RankOrder, RefusesWhatOneOrderCannotHold) {
  EXPECT_THROW(RankOrder(kDefaultOrder, {1, 2, 2, 1, 1}), ConfigError);
  EXPECT_THROW(RankOrder("tp-dp", {2, 1, 1, 2, 2}), ConfigError);
  EXPECT_THROW(RankOrder("tp-xx", {2, 1, 1, 2, 2}), ConfigError);
}

void compare_groups(const RankOrder& order, const nlohmann::json& expected) {
  for (const auto& [axes, groups] : expected.items()) EXPECT_EQ(order.groups(axes), groups.get<Groups>()) << axes;
}

TEST(RankOrder, GroupsOfMegatron) {
  const auto path = megatron::testing::reference_dir() / "golden/mcore/ranks/rank_groups.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int compared = 0;
  for (const auto& entry : nlohmann::json::parse(std::ifstream(path))) {
    if (!entry.contains("ok") || !entry["ok"].is_object()) continue;
    const auto& ok = entry["ok"];
    const std::string text = entry["order"];
    auto size = [](const nlohmann::json& value) { return value.get<int>(); };
    const RankOrder dense(text, AxisValues{size(entry["tp"]), size(entry["cp"]), 1, size(ok["dp"]), size(entry["pp"])});
    compare_groups(dense, ok["dense"]);
    const RankOrder expert(text,
                           AxisValues{size(entry["etp"]), 1, size(entry["ep"]), size(ok["edp"]), size(entry["pp"])});
    compare_groups(expert, ok["expert"]);
    EXPECT_EQ(dense.groups("pp") == expert.groups("pp"), ok["pp_groups_match"].get<bool>());
    EXPECT_EQ(dense.embedding_groups(), ok["embedding"].get<Groups>());
    EXPECT_EQ(dense.position_embedding_groups(), ok["position_embedding"].get<Groups>());
    ++compared;
  }
  EXPECT_GE(compared, 15);
}

TEST(RankOrder, ExpertProductThatDoesNotFitIsNamed) {
  ParallelSpec p;
  p.world_size = 8;
  p.pipeline_parallel = 4;
  p.expert_parallel = 8;
  p.data_parallel = 2;
  try {
    expert_order(p, 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(
        std::string(error.what()).find("world size 8 not divisible by expert tensor 1 x expert 8 x pipeline 4 = 32"),
        std::string::npos);
  }
}

}  // namespace
}  // namespace megatron::spec
