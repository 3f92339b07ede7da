// The MPI world under mpirun: conformance, and the ends of runs that fail. Skipped where there is no mpirun.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "comm/world.h"
#include "mpi/mpi_process.h"

namespace megatron::comm {
namespace {

TEST(MpiWorld, Conformance) {
  MEGATRON_REQUIRE_MPIRUN();
  for (const int processes : {2, 3}) {
    const ChildResult result = mpirun(processes, own_body("Conformance"), {}, 60);
    EXPECT_EQ(result.exit_status, 0) << result.output;
    for (int rank = 0; rank < processes; ++rank)
      EXPECT_EQ(
          count_of(result.output, "rank " + std::to_string(rank) + " of " + std::to_string(processes) + " conforms"), 1)
          << result.output;
  }
}

TEST(MpiWorld, ExceptionEndsAllAndIsPrintedOnce) {
  MEGATRON_REQUIRE_MPIRUN();
  const ChildResult result = mpirun(3, own_body("Loop"), {"MEGATRON_TEST_FAULTS=rank=1,operation=5,kind=throw"}, 30);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_status, 1) << result.output;
  EXPECT_EQ(count_of(result.output, "error: "), 1) << result.output;
  EXPECT_EQ(count_of(result.output,
                     "error: rank 1, step of iteration 5, all_reduce #5 \"grads\" in dp: injected fault: throw\n"),
            1)
      << result.output;
  EXPECT_EQ(count_of(result.output, "did step 5"), 0) << result.output;
}

TEST(MpiWorld, DisagreementNamesBothRanks) {
  MEGATRON_REQUIRE_MPIRUN();
  const ChildResult result =
      mpirun(2, own_body("Loop"), {"MEGATRON_TEST_FAULTS=rank=1,operation=3,kind=wrong_count"}, 30);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_status, 3) << result.output;
  EXPECT_EQ(count_of(result.output, "error: "), 1) << result.output;
  EXPECT_NE(result.output.find("rank 0 posted all_reduce float32 [100000]"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("rank 1 posted all_reduce float32 [99999]"), std::string::npos) << result.output;
}

TEST(MpiWorld, KilledRankEndsTheRun) {
  MEGATRON_REQUIRE_MPIRUN();
  const ChildResult result = mpirun(2, own_body("Loop"), {"MEGATRON_TEST_FAULTS=rank=1,operation=5,kind=kill"}, 30);
  EXPECT_FALSE(result.timed_out) << result.output;
  EXPECT_NE(result.exit_status, 0) << result.output;
  // The launcher's own line names it.
  EXPECT_NE(result.output.find("signal 9"), std::string::npos) << result.output;
}

TEST(MpiWorld, StoppedRankIsFoundByTheWatchdog) {
  MEGATRON_REQUIRE_MPIRUN();
  const ChildResult result = mpirun(
      2, own_body("Loop"), {"MEGATRON_TEST_FAULTS=rank=1,operation=5,kind=stop", "MEGATRON_TEST_TIMEOUT=1.5"}, 30);
  EXPECT_FALSE(result.timed_out) << result.output;
  EXPECT_EQ(result.exit_status, 3) << result.output;
  EXPECT_NE(result.output.find("     1  silent    its process does not answer"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("error: rank 0, step of iteration 5, all_reduce #5 \"grads\" in dp: no progress for "),
            std::string::npos)
      << result.output;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(MpiWorld, CutLinkBetweenTwoHostsEndsBothSides) {
  MEGATRON_REQUIRE_MPIRUN();
  if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / str_cat("megatron-two-hosts-", ::getpid());
  std::filesystem::create_directories(folder);
  std::vector<std::string> command = {std::string(MEGATRON_SOURCE_DIR) + "/tests/mpi/two_hosts.sh", folder.string()};
  for (const std::string& argument : own_body("Loop")) command.push_back(argument);
  std::vector<std::string> environment = mpi_environment();
  environment.push_back("MEGATRON_TEST_STEPS=2000");
  environment.push_back("MEGATRON_TEST_TIMEOUT=1.5");
  const ChildResult result = run_command(command, environment, 60);
  const std::string sides[2] = {read_file(folder / "rank.0"), read_file(folder / "rank.1")};
  std::filesystem::remove_all(folder);
  if (result.exit_status == 77) GTEST_SKIP() << "network namespaces are not allowed here";
  ASSERT_EQ(result.exit_status, 0) << result.output;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string& side = sides[rank];
    EXPECT_NE(side.find("exit status 3"), std::string::npos) << side;
    EXPECT_NE(side.find(str_cat("error: rank ", rank, ", step of iteration ")), std::string::npos) << side;
    EXPECT_NE(side.find("\"grads\" in dp: no progress for "), std::string::npos) << side;
    EXPECT_NE(side.find(str_cat("     ", 1 - rank, "  silent")), std::string::npos) << side;
  }
}

TEST(MpiWorld, LauncherIsFoundInTheEnvironment) {
  const auto with = [](const std::vector<std::string>& environment) {
    // `env -i` first: this test may itself run under a launcher.
    return run_in_child(
               [&] {
                 ::clearenv();
                 for (const std::string& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
                 ::_exit(launcher_world_size());
               },
               10)
        .exit_status;
  };
  EXPECT_EQ(with({}), 0);
  EXPECT_EQ(with({"OMPI_COMM_WORLD_SIZE=4"}), 4);
  EXPECT_EQ(with({"PMI_SIZE=3", "PMI_RANK=0"}), 3);
  EXPECT_EQ(with({"PMIX_RANK=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=8"}), 8);
  EXPECT_EQ(with({"SLURM_NTASKS=8", "SLURM_JOB_ID=5"}), 0) << "a batch script is no step";
  EXPECT_EQ(with({"SLURM_NTASKS=8", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=8"}), 0) << "srun without PMI";
  EXPECT_EQ(with({"OMPI_COMM_WORLD_SIZE=many"}), 0);
}

}  // namespace
}  // namespace megatron::comm
