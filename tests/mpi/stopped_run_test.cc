// Runs under mpirun that are asked to stop.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "mpi/run_process.h"

namespace megatron::comm {
namespace {

using testing::TemporaryFolder;

TEST(StoppedRun, UserSignalToTheLauncherSavesAndStops) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  StartedRun run(mpirun_command(4, {"--train-iters", "100000", "--tensor-model-parallel-size", "2", "--save",
                                    folder / "ck", "--save-interval", "100000"}));
  ASSERT_TRUE(run.wait_for("iteration        2/"));
  run.signal(SIGUSR1);
  const ChildResult result = run.finish(60);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_status, 128 + SIGUSR1) << result.output;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(result.output, match,
                                std::regex("stopped by SIGUSR1 after iteration (\\d+), saved (\\S+)\r?\n")))
      << result.output;
  EXPECT_TRUE(std::filesystem::exists(std::string(match[2]) + "/manifest.json"));
  EXPECT_NE(file_text(folder / "ck/latest_checkpointed_iteration.txt").find(match[1]), std::string::npos);
  // All processes get the signal; one says so.
  EXPECT_EQ(count_of(result.output, "received SIGUSR1"), 1) << result.output;
  EXPECT_EQ(processes_left(folder.path()), 0);
}

}  // namespace
}  // namespace megatron::comm
