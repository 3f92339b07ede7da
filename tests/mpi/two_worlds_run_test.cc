// One run with thread ranks and with MPI processes: equal text in the JSON log, equal bytes in the checkpoint.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "mpi/run_process.h"

namespace megatron::comm {
namespace {

using testing::folder_bytes;
using testing::TemporaryFolder;

Words saving(const TemporaryFolder& folder, const std::string& name) {
  return {"--train-iters",   "6", "--save",     folder / name,
          "--save-interval", "3", "--log-json", folder / (name + ".log")};
}

void expect_equal_logs(const std::string& a, const std::string& b, std::size_t steps) {
  for (const char* key : {"iteration", "loss", "grad_norm", "lr", "validation_loss"})
    EXPECT_EQ(json_texts(a, key), json_texts(b, key)) << key;
  EXPECT_EQ(json_texts(a, "loss").size(), steps);
  EXPECT_EQ(json_texts(b, "validation_loss").size(), 1U);
}

// world size without --world-size: TP × PP with threads, the number of processes under a launcher.
TEST(TwoWorlds, TensorAndPipelineParallel) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  const Words layout = {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"};
  const ChildResult threads = train_threads(layout + saving(folder, "threads"));
  ASSERT_EQ(threads.exit_status, 0) << threads.output;
  const ChildResult processes = train_mpi(4, layout + saving(folder, "processes"));
  ASSERT_EQ(processes.exit_status, 0) << processes.output;
  for (const ChildResult* result : {&threads, &processes})
    EXPECT_EQ(count_of(result->output, "layout: 4 ranks · tensor parallel 2 · pipeline parallel 2 ·"), 1)
        << result->output;
  expect_equal_logs(folder / "threads.log", folder / "processes.log", 6);
  // The summary of the run.
  for (const char* key : {"parameters", "gradients", "optimizer", "all_reduce", "send", "peak_chunk_stashes",
                          "recomputed_flops", "model_flops"}) {
    const Words of_threads = json_texts(folder / "threads.log", key);
    EXPECT_EQ(of_threads, json_texts(folder / "processes.log", key)) << key;
    EXPECT_FALSE(of_threads.empty()) << key;
  }
  EXPECT_TRUE(folder_bytes(folder / "threads") == folder_bytes(folder / "processes"));
  EXPECT_EQ(folder_bytes(folder / "processes").size(), 9U);  // two checkpoints of four files, and which is the latest
}

// Gradients and values in shards: the same bits where gathers and sums travel between processes.
TEST(TwoWorlds, ShardsOfGradientsAndParameters) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  const Words layout = {"--pipeline-model-parallel-size",
                        "2",
                        "--use-megatron-fsdp",
                        "--bf16",
                        "--pipeline-schedule",
                        "zb-h1",
                        "--world-size",
                        "4"};
  const ChildResult threads = train_threads(layout + saving(folder, "threads"));
  ASSERT_EQ(threads.exit_status, 0) << threads.output;
  const ChildResult processes = train_mpi(4, layout + saving(folder, "processes"));
  ASSERT_EQ(processes.exit_status, 0) << processes.output;
  expect_equal_logs(folder / "threads.log", folder / "processes.log", 6);
  EXPECT_TRUE(folder_bytes(folder / "threads") == folder_bytes(folder / "processes"));
}

TEST(TwoWorlds, SequenceParallelRunGoesOnInTheOtherWorld) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  const Words layout = {"--tensor-model-parallel-size", "2", "--sequence-parallel"};
  const ChildResult straight = train_threads(layout + saving(folder, "straight") + Words{"--world-size", "4"});
  ASSERT_EQ(straight.exit_status, 0) << straight.output;
  const Words halves = layout + saving(folder, "halves");
  const ChildResult first = train_threads(halves + Words{"--world-size", "4", "--exit-interval", "3"});
  ASSERT_EQ(first.exit_status, 0) << first.output;
  const ChildResult second = train_mpi(4, halves + Words{"--load", folder / "halves"});
  ASSERT_EQ(second.exit_status, 0) << second.output;
  EXPECT_EQ(count_of(second.output, "layout: 4 ranks · tensor parallel 2 with sequence parallelism · data parallel 2"),
            1)
      << second.output;
  // Appended to the first half's log, by one rank.
  expect_equal_logs(folder / "straight.log", folder / "halves.log", 6);
  EXPECT_TRUE(folder_bytes(folder / "straight") == folder_bytes(folder / "halves"));
}

/// What each rank did in a trace, without its times. Communication is left out: a message that has arrived needs no
/// wait.
std::map<int, std::vector<std::string>> names_by_rank(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::map<int, std::vector<std::string>> names;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const std::string category = event.value("cat", "");
    if (category == "wait" || category == "post") continue;
    names[event.at("pid").get<int>()].push_back(event.at("name").get<std::string>() +
                                                event.at("args").value("instruction", ""));
  }
  return names;
}

// The processes send their records to the first one: the file holds the same events of the same ranks.
TEST(TwoWorlds, OneTraceOfAllProcesses) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  const auto traced = [&](const char* name) {
    return Words{"--tensor-model-parallel-size",
                 "2",
                 "--pipeline-model-parallel-size",
                 "2",
                 "--train-iters",
                 "3",
                 "--profile-step-start",
                 "1",
                 "--profile-step-end",
                 "2",
                 "--profile",
                 "--trace",
                 folder / name};
  };
  const ChildResult threads = train_threads(traced("threads.json"));
  ASSERT_EQ(threads.exit_status, 0) << threads.output;
  const ChildResult processes = train_mpi(4, traced("processes.json"));
  ASSERT_EQ(processes.exit_status, 0) << processes.output;
  for (const ChildResult* result : {&threads, &processes})
    EXPECT_EQ(count_of(result->output, "1 step from iteration 2, mean of 4 ranks"), 1) << result->output;
  const auto expected = names_by_rank(folder / "threads.json");
  EXPECT_EQ(expected.size(), 4U);
  EXPECT_EQ(names_by_rank(folder / "processes.json"), expected);
}

// What is refused before MPI is joined needs no launcher: its environment is enough.
ChildResult as_process(const std::string& rank, const std::string& size, const Words& more, const Words& environment) {
  return run_command(train_command(Words{"--train-iters", "2"} + more),
                     Words{"OMPI_COMM_WORLD_SIZE=" + size, "OMPI_COMM_WORLD_RANK=" + rank} + environment, 60);
}

TEST(TwoWorlds, AnotherWorldSizeThanTheLaunchersIsRefused) {
  const ChildResult result = as_process("0", "4", {"--world-size", "2"}, {});
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.output, "--world-size 2 (command line): the launcher started 4 processes; nearest: 4\n");
}

TEST(TwoWorlds, SrunStepsAreProcessesOfOneWorld) {
  const ChildResult result =
      run_command(train_command({"--train-iters", "2", "--world-size", "4"}),
                  {"PMIX_RANK=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0"}, 60);
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.output, "--world-size 4 (command line): the launcher started 2 processes; nearest: 2\n");
}

TEST(TwoWorlds, MissingLibraryIsToldInOneLine) {
  const TemporaryFolder folder;
  for (const char* name : {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so"})
    std::ofstream(folder / name) << "not a library\n";
  const ChildResult result = as_process("0", "1", {}, {"LD_LIBRARY_PATH=" + folder.path()});
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(count_of(result.output, "--distributed-backend mpi: no MPI library can be loaded ("), 1) << result.output;
  EXPECT_EQ(count_of(result.output, "leave the launcher out: ranks are then threads\n"), 1) << result.output;
}

TEST(TwoWorlds, AnErrorOfOneProcessAloneIsToldByIt) {
  // The first process would tell what all meet; nobody ends this one, so it speaks itself.
  const ChildResult result = as_process("3", "4", {"--world-size", "2"}, {});
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.output, "rank 3: --world-size 2 (command line): the launcher started 4 processes; nearest: 4\n");
}

TEST(TwoWorlds, FewerProcessesThanTheLayoutNeedsAreRefusedOnce) {
  MEGATRON_REQUIRE_MPIRUN();
  const ChildResult result =
      train_mpi(2, {"--train-iters", "2", "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"});
  EXPECT_EQ(result.exit_status, 2) << result.output;
  EXPECT_EQ(count_of(result.output, "world size 2 not divisible by tensor 2 x pipeline 2"), 1) << result.output;
  EXPECT_EQ(count_of(result.output, "received SIGTERM"), 0) << result.output;
}

}  // namespace
}  // namespace megatron::comm
