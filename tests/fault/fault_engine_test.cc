// Every kind of operation with every kind of fault: the run ends, names the rank, and no other rank stays behind.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>

#include "comm/child_process.h"
#include "comm/operations.h"
#include "comm/world.h"

namespace megatron::comm {
namespace {

constexpr int kRanks = 3;

std::vector<int> everyone() {
  std::vector<int> ranks(kRanks);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

WorldOptions options_with(const std::string& faults) {
  WorldOptions options;
  options.world_size = kRanks;
  options.timeout_seconds = 60;
  options.grace_seconds = 60;
  options.faults = parse_fault_plan(faults);
  return options;
}

// Operation 0 of each rank is a barrier, operation 1 the one under test, then more of the same kind.
void train(RankContext& rank, const std::string& kind) {
  const auto allocator = tensor::Allocator::create(Device::cpu);
  const auto group = rank.create_group("world", everyone());
  rank.note_progress("step", 0);
  group->barrier("start");
  for (int i = 0; i < 3; ++i) run_operation(kind, *group, *allocator);
  group->barrier("end");
}

class FaultEngine : public testing::TestWithParam<std::string> {};

TEST_P(FaultEngine, Throw) {
  const auto world = create_local_world(options_with("rank=1,operation=1,kind=throw"));
  std::atomic<int> others{0};
  testing::internal::CaptureStderr();
  try {
    world->run([&](RankContext& rank) {
      try {
        train(rank, GetParam());
      } catch (const CommError& e) {
        // Everybody else is told who it was and what it did.
        EXPECT_NE(std::string(e.what()).find("rank 1"), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find("injected fault"), std::string::npos) << e.what();
        ++others;
        throw;
      }
    });
    ADD_FAILURE() << "the run did not fail";
  } catch (const CommError& e) {
    ADD_FAILURE() << "not the culprit's own error: " << e.what();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "injected fault: throw");
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(others.load(), kRanks - 1);
  EXPECT_TRUE(world->failure_reported());
  EXPECT_EQ(log.find("error: rank 1, "), 0U) << log;
  const std::string name = GetParam() == "message" ? "send" : GetParam();
  EXPECT_NE(log.find(name + " #1 \"" + GetParam() + "\" in world: injected fault: throw\n"), std::string::npos) << log;
  EXPECT_EQ(log.find("error:", 1), std::string::npos) << "more than one line: " << log;
}

TEST_P(FaultEngine, WrongCount) {
  const auto world = create_local_world(options_with("rank=1,operation=1,kind=wrong_count"));
  testing::internal::CaptureStderr();
  std::string message;
  try {
    world->run([&](RankContext& rank) { train(rank, GetParam()); });
  } catch (const CommError& e) {
    message = e.what();
  }
  testing::internal::GetCapturedStderr();
  // Both ranks and both keys.
  EXPECT_NE(message.find("rank 1 posted"), std::string::npos) << message;
  EXPECT_NE(message.find("\"" + GetParam() + "\", rank "), std::string::npos) << message;
}

TEST_P(FaultEngine, DelayChangesNothing) {
  const auto world = create_local_world(options_with("rank=2,operation=1,kind=delay,seconds=0.05"));
  std::atomic<int> ranks{0};
  world->run([&](RankContext& rank) {
    train(rank, GetParam());
    ++ranks;
  });
  EXPECT_EQ(ranks.load(), kRanks);
}

TEST_P(FaultEngine, DelayBeyondTheTimeout) {
  const ChildResult child = run_in_child(
      [&] {
        WorldOptions options = options_with("rank=1,operation=1,kind=delay,seconds=60");
        options.timeout_seconds = 0.3;
        options.grace_seconds = 0.3;
        create_local_world(options)->run([&](RankContext& rank) { train(rank, GetParam()); });
      },
      10);
  EXPECT_FALSE(child.timed_out);
  EXPECT_EQ(child.exit_status, 3) << child.output;
  EXPECT_NE(child.output.find("watchdog: rank "), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("in no operation or silent: rank 1"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("error: not back"), std::string::npos) << child.output;
}

TEST_P(FaultEngine, Nan) {
  if (GetParam() == "barrier") return;  // carries no data; the next test shows that the fault then waits for some
  const auto world = create_local_world(options_with("rank=0,operation=1,kind=nan"));
  std::atomic<int> ranks_with_nan{0};
  world->run([&](RankContext& rank) {
    const auto allocator = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("world", everyone());
    group->barrier("start");
    const Tensor got = run_operation(GetParam(), *group, *allocator);
    bool nan = false;
    for (std::int64_t i = 0; i < got.numel(); ++i) nan |= std::isnan(got.data<float>()[i]);
    if (nan) ++ranks_with_nan;
  });
  // A sum spreads it, a message or a share brings it to one rank.
  const bool to_one = GetParam() == "message" || GetParam() == "reduce_scatter" || GetParam() == "all_to_all";
  EXPECT_EQ(ranks_with_nan.load(), to_one ? 1 : kRanks);
}

TEST_P(FaultEngine, Exit) {
  const ChildResult child = run_in_child(
      [&] {
        create_local_world(options_with("rank=1,operation=1,kind=exit"))->run([&](RankContext& rank) {
          train(rank, GetParam());
        });
      },
      10);
  EXPECT_EQ(child.exit_status, 9) << child.output;
}

TEST_P(FaultEngine, Kill) {
  const ChildResult child = run_in_child(
      [&] {
        create_local_world(options_with("rank=2,operation=1,kind=kill"))->run([&](RankContext& rank) {
          train(rank, GetParam());
        });
      },
      10);
  EXPECT_EQ(child.signal, SIGKILL) << child.output;
}

TEST_P(FaultEngine, Stop) {
  const ChildResult child = run_in_child(
      [&] {
        create_local_world(options_with("rank=0,operation=1,kind=stop"))->run([&](RankContext& rank) {
          train(rank, GetParam());
        });
      },
      10);
  EXPECT_TRUE(child.stopped) << child.output;
}

INSTANTIATE_TEST_SUITE_P(Operations, FaultEngine, testing::ValuesIn(operation_kinds()),
                         [](const auto& instance) { return instance.param; });

TEST(FaultEngineOnce, StrikesAtTheFirstOperationOfAnIteration) {
  WorldOptions options = options_with("rank=1,iteration=2,kind=throw");
  options.print_failure = false;
  std::atomic<int> reached{-1};
  const auto world = create_local_world(options);
  EXPECT_THROW(world->run([&](RankContext& rank) {
    const auto group = rank.create_group("world", everyone());
    for (int iteration = 0; iteration < 5; ++iteration) {
      rank.note_progress("step", iteration);
      if (rank.rank() == 1) reached = iteration;
      group->barrier("step");
    }
  }),
               Error);
  EXPECT_EQ(reached.load(), 2);
}

TEST(FaultEngineOnce, NanWaitsForFloatsAndStrikesGroupsOfOneToo) {
  WorldOptions options = options_with("rank=0,operation=0,kind=nan");
  options.world_size = 1;
  const auto world = create_local_world(options);
  int nans = 0;
  world->run([&](RankContext& rank) {
    const auto allocator = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("alone", {0});
    group->barrier("no data");
    for (int i = 0; i < 2; ++i)
      if (std::isnan(run_operation("all_reduce", *group, *allocator).data<float>()[0])) ++nans;
  });
  EXPECT_EQ(nans, 1);
}

}  // namespace
}  // namespace megatron::comm
