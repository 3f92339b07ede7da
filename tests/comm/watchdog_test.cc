// The watchdog: what it prints, whom it names, how the process ends.
#include "comm/watchdog.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/child_process.h"
#include "comm/world.h"

namespace megatron::comm {
namespace {

WorldOptions impatient() {
  WorldOptions options;
  options.world_size = 3;
  options.timeout_seconds = 0.3;
  options.grace_seconds = 0.3;
  return options;
}

TEST(Watchdog, PrintsTheTableAndNamesTheOperation) {
  // The rank that keeps the others waiting comes back in time, so run() itself reports.
  const ChildResult child = run_in_child(
      [] {
        WorldOptions options = impatient();
        options.grace_seconds = 20;
        options.timeout_option = "--limit";
        create_local_world(options)->run([](RankContext& rank) {
          const auto group = rank.create_group("dp", {0, 1, 2});
          rank.note_progress("backward", 7);
          group->barrier("start");
          rank.note_progress("backward", 8);
          if (rank.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          group->barrier("grads");
        });
      },
      30);
  EXPECT_EQ(child.exit_status, 3) << child.output;
  EXPECT_NE(child.output.find("watchdog: rank 1 in no operation or silent; rank "), std::string::npos) << child.output;
  EXPECT_NE(child.output.find(" (--limit); all ranks:"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("backward / barrier #1 \"grads\" in dp"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("     1  running"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("error: rank "), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("silent: rank 1"), std::string::npos) << child.output;
}

TEST(Watchdog, EndsTheProcessWithTheStatusOfTheError) {
  const auto status_of = [](const std::function<void()>& fail) {
    return run_in_child(
        [&] {
          create_local_world(impatient())->run([&](RankContext& rank) {
            if (rank.rank() == 0) fail();
            std::this_thread::sleep_for(std::chrono::seconds(60));
          });
        },
        20);
  };
  EXPECT_EQ(status_of([] { throw Error("x"); }).exit_status, 1);
  EXPECT_EQ(status_of([] { throw ConfigError("x"); }).exit_status, 2);
  const ChildResult comm = status_of([] { throw CommError("x"); });
  EXPECT_EQ(comm.exit_status, 3);
  EXPECT_NE(comm.output.find("error: rank 0, before its first operation: x\n"), std::string::npos) << comm.output;
  EXPECT_NE(comm.output.find("error: not back"), std::string::npos) << comm.output;
}

TEST(Watchdog, DoesNotEndWhoProgresses) {
  WorldOptions options = impatient();
  const auto world = create_local_world(options);
  world->run([](RankContext& rank) {
    const auto group = rank.create_group("dp", {0, 1, 2});
    for (int i = 0; i < 6; ++i) {
      if (rank.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      group->barrier("step");
    }
  });
  EXPECT_FALSE(world->failure_reported());
}

}  // namespace
}  // namespace megatron::comm
