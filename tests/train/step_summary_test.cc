#include "train/step_summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>

#include "support/run_ranks.h"

namespace megatron::train {
namespace {

using megatron::testing::make_parallel;
using megatron::testing::run_mesh;

TEST(StepSummary, AllRanksGetTheExactSums) {
  run_mesh(make_parallel(2, 2, 2), [](mesh::Rank& rank) {
    pipeline::StepOutput output;
    output.loss_sum.add(1e17 * (rank.mesh.dp.rank() == 0 ? 1.0 : -1.0));
    output.loss_sum.add(0.5);
    output.mask_sum.add(2.0);
    output.trained_tokens = 3;
    StepSummary local = local_summary(rank.mesh, output, rank.mesh.rank == 5 ? SIGTERM : 0);
    local.data_seconds = 0.25;
    const StepSummary total = reduce_summary(rank, local, "test");
    // Two data-parallel ranks count: on the last stage, first tensor-parallel rank.
    EXPECT_EQ(total.loss_sum.value(), 1.0);
    EXPECT_EQ(total.loss(), 0.25);
    EXPECT_EQ(total.token_sum(), 4.0);
    EXPECT_EQ(total.trained_tokens, 6);
    EXPECT_EQ(total.bad_ranks, 0);
    EXPECT_EQ(total.stop_signal(), SIGTERM);
    EXPECT_NEAR(total.data_seconds, 2.0, 1e-9);
  });
}

TEST(StepSummary, NothingTrainedHasLossZeroAndNaNStaysNaN) {
  StepSummary empty;
  EXPECT_EQ(empty.loss(), 0.0);
  run_mesh(make_parallel(1, 1, 2), [](mesh::Rank& rank) {
    pipeline::StepOutput output;
    output.loss_sum.add(rank.mesh.rank == 1 ? NAN : 1.0);
    output.mask_sum.add(1.0);
    output.first_bad_tensor = rank.mesh.rank == 1 ? "loss of micro-batch 0" : "";
    const StepSummary total = reduce_summary(rank, local_summary(rank.mesh, output, 0), "test");
    EXPECT_TRUE(std::isnan(total.loss()));
    EXPECT_EQ(total.bad_ranks, 1);
  });
}

TEST(StepSummary, TextsOfAllRanksByRank) {
  run_mesh(make_parallel(1, 1, 3), [](mesh::Rank& rank) {
    const auto texts = gather_texts(rank, std::string(static_cast<std::size_t>(rank.mesh.rank) * 3, 'x'), "test");
    ASSERT_EQ(texts.size(), 3U);
    EXPECT_EQ(texts[0], "");
    EXPECT_EQ(texts[2], "xxxxxx");
    const auto long_texts = gather_texts(rank, std::string(1000, 'y'), "test");
    EXPECT_EQ(long_texts[1], std::string(480, 'y'));
  });
}

}  // namespace
}  // namespace megatron::train
