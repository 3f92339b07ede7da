// The local world: conformance of all operations, disagreements, dropped and outstanding operations, ends of all kinds.
#include "comm/world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "comm/conformance.h"

namespace megatron::comm {
namespace {

WorldOptions options_of(int world_size) {
  WorldOptions options;
  options.world_size = world_size;
  options.timeout_seconds = 60;
  options.grace_seconds = 60;
  options.print_failure = false;
  return options;
}

class LocalConformance : public testing::TestWithParam<int> {};

TEST_P(LocalConformance, AllOperations) {
  std::atomic<int> ranks{0};
  create_local_world(options_of(GetParam()))->run([&](RankContext& rank) {
    conformance::run_all(rank, 70000);
    ++ranks;
  });
  EXPECT_EQ(ranks.load(), GetParam());
}

TEST_P(LocalConformance, PerturbedSchedule) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    WorldOptions options = options_of(GetParam());
    options.perturb_seed = seed;
    std::atomic<int> ranks{0};
    create_local_world(options)->run([&](RankContext& rank) {
      conformance::run_all(rank, 20000);
      ++ranks;
    });
    EXPECT_EQ(ranks.load(), GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LocalConformance, testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace megatron::comm
