// Runs of the program that fail: whatever happens to one rank, all end, one line says what, and nobody is left.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "checkpoint/checksum.h"
#include "mpi/run_process.h"

namespace megatron::comm {
namespace {

using testing::folder_bytes;
using testing::TemporaryFolder;

const Words kLayout = {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"};

Words faulty(const TemporaryFolder& folder, const std::string& fault) {
  return kLayout +
         Words{"--train-iters", "500", "--save", folder / "ck", "--save-interval", "2", "--inject-fault", fault};
}

void expect_whole_checkpoint(const TemporaryFolder& folder) {
  EXPECT_EQ(file_text(folder / "ck/latest_checkpointed_iteration.txt").substr(0, 1), "2");
  EXPECT_FALSE(std::filesystem::exists(folder / "ck/iter_0000002.tmp"));
  EXPECT_TRUE(std::filesystem::exists(folder / "ck/iter_0000002/manifest.json"));
}

TEST(FailingRun, ThreadsEndWithTheStatusOfTheFault) {
  struct Case {
    const char* kind;
    int status;
    const char* line;
  };
  for (const Case& c :
       {Case{"throw", 1, "error: rank 2, step of iteration 3, receive #"}, Case{"wrong_count", 3, "ranks disagree on"},
        Case{"nan", 1, "iteration 3: NaN or Inf in "}, Case{"exit", 9, ""}}) {
    const TemporaryFolder folder;
    const ChildResult result = train_threads(faulty(folder, std::string("rank=2,iteration=3,kind=") + c.kind));
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.exit_status, c.status) << c.kind << "\n" << result.output;
    EXPECT_NE(result.output.find(c.line), std::string::npos) << result.output;
    EXPECT_EQ(count_of(result.output, "error: "), c.line[0] == 'i' || c.line[0] == 0 ? 0 : 1) << result.output;
    expect_whole_checkpoint(folder);
  }
}

TEST(FailingRun, ThreadThatHangsIsFoundByTheWatchdog) {
  const TemporaryFolder folder;
  const ChildResult result = train_threads(faulty(folder, "rank=2,iteration=3,kind=delay,seconds=600") +
                                           Words{"--distributed-timeout-seconds", "1.5"});
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_status, 3) << result.output;
  EXPECT_NE(result.output.find(" (watchdog); in no operation or silent: rank 2"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("     2  posting"), std::string::npos) << result.output;
  expect_whole_checkpoint(folder);
}

/// The first operation of a step at ZeRO stage 3 gathers the embedding.
Words gathering(const TemporaryFolder& folder, const std::string& fault) {
  return Words{"--world-size",
               "2",
               "--use-megatron-fsdp",
               "--train-iters",
               "500",
               "--save",
               folder / "ck",
               "--save-interval",
               "2",
               "--inject-fault",
               fault};
}

TEST(FailingRun, RankThatIsSilentInAGatherIsNamed) {
  const TemporaryFolder folder;
  const ChildResult result = train_threads(gathering(folder, "rank=1,iteration=3,kind=delay,seconds=600") +
                                           Words{"--distributed-timeout-seconds", "1.5"});
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_status, 3) << result.output;
  EXPECT_NE(result.output.find("parameter bucket"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("in no operation or silent: rank 1"), std::string::npos) << result.output;
  expect_whole_checkpoint(folder);
}

TEST(FailingRun, ProcessKilledInAGatherEndsTheOther) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  const ChildResult result = train_mpi(2, gathering(folder, "rank=1,iteration=3,kind=kill"), 30);
  EXPECT_FALSE(result.timed_out) << result.output;
  EXPECT_EQ(result.exit_status, 128 + 9) << result.output;
  EXPECT_NE(result.output.find("rank 1"), std::string::npos) << result.output;
  EXPECT_EQ(processes_left(folder.path()), 0);
  expect_whole_checkpoint(folder);
}

TEST(FailingRun, ExceptionOfAProcessIsToldOnce) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  const ChildResult result = train_mpi(4, faulty(folder, "rank=2,iteration=3,kind=throw"));
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_status, 1) << result.output;
  EXPECT_EQ(count_of(result.output, "injected fault"), 1) << result.output;
  EXPECT_NE(result.output.find("error: rank 2, step of iteration 3, receive #"), std::string::npos) << result.output;
  EXPECT_EQ(count_of(result.output, "received SIG"), 0) << result.output;
  EXPECT_EQ(processes_left(folder.path()), 0);
  expect_whole_checkpoint(folder);
}

TEST(FailingRun, KilledProcessEndsTheOthers) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  const ChildResult result = train_mpi(4, faulty(folder, "rank=2,iteration=3,kind=kill"), 30);
  EXPECT_FALSE(result.timed_out) << result.output;
  EXPECT_EQ(result.exit_status, 128 + 9) << result.output;
  EXPECT_NE(result.output.find("rank 2"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("signal 9"), std::string::npos) << result.output;
  EXPECT_EQ(processes_left(folder.path()), 0);
  expect_whole_checkpoint(folder);
}

TEST(FailingRun, StoppedFirstProcessIsNamedByOneOfTheOthers) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  const ChildResult result =
      train_mpi(4, faulty(folder, "rank=0,iteration=3,kind=stop") + Words{"--distributed-timeout-seconds", "3"}, 30);
  EXPECT_FALSE(result.timed_out) << result.output;
  EXPECT_EQ(result.exit_status, 3) << result.output;
  EXPECT_EQ(count_of(result.output, "all ranks:"), 1) << result.output;
  EXPECT_EQ(count_of(result.output, "     0  silent    its process does not answer"), 1) << result.output;
  EXPECT_EQ(count_of(result.output, " of iteration 3, "), 1) << result.output;
  EXPECT_EQ(count_of(result.output, "no progress for "), 1) << result.output;
  EXPECT_EQ(processes_left(folder.path()), 0);
  expect_whole_checkpoint(folder);
}

std::string checksum_text(const std::string& bytes) {
  char text[17];
  const std::uint64_t sum = checkpoint::checksum_of(std::as_bytes(std::span(bytes.data(), bytes.size())));
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(sum));
  return text;
}

/// Makes the first element of a weight of a checkpoint NaN, as a run would have saved it.
void spoil(const std::string& checkpoint, const std::string& tensor) {
  const std::string file = "model-00001.safetensors", path = checkpoint + "/" + file;
  std::string bytes = file_text(path);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const auto json = nlohmann::json::parse(bytes.substr(8, header));
  const auto begin = json.at(tensor).at("data_offsets").at(0).get<std::uint64_t>();
  const auto end = json.at(tensor).at("data_offsets").at(1).get<std::uint64_t>();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + 8 + header + begin, &nan, sizeof(nan));
  std::ofstream(path, std::ios::binary) << bytes;
  auto manifest = nlohmann::json::parse(file_text(checkpoint + "/manifest.json"));
  manifest.at("tensors").at(tensor).at("xxh3") = checksum_text(bytes.substr(8 + header + begin, end - begin));
  std::ofstream(checkpoint + "/manifest.json") << manifest.dump(1) << "\n";
}

TEST(FailingRun, NotANumberInAWeightIsNamedInBothWorlds) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder folder;
  const Words saving = kLayout + Words{"--save", folder / "ck", "--save-interval", "2", "--log-json", folder / "log"};
  const ChildResult made = train_threads(saving + Words{"--train-iters", "8", "--exit-interval", "2"});
  ASSERT_EQ(made.exit_status, 0) << made.output;
  spoil(folder / "ck/iter_0000002", "decoder.layers.1.mlp.linear_fc2.weight");
  const auto before = folder_bytes(folder / "ck");
  const Words loading = saving + Words{"--train-iters", "8", "--load", folder / "ck"};
  for (const ChildResult& result : {train_threads(loading), train_mpi(4, loading)}) {
    EXPECT_EQ(result.exit_status, 1) << result.output;
    EXPECT_EQ(count_of(result.output,
                       "iteration 3: NaN or Inf in weight decoder.layers.1.mlp.linear_fc2.weight (first "
                       "seen in loss of micro-batch 0) on rank 2 (tp 0, pp 1, dp 0); no weight was"),
              1)
        << result.output;
    EXPECT_EQ(count_of(result.output, "received SIG"), 0) << result.output;
  }
  // Nothing was saved, and the log tells of it.
  EXPECT_TRUE(folder_bytes(folder / "ck") == before);
  EXPECT_EQ(json_texts(folder / "log", "nan"), (Words{"false", "false", "true", "true"}));
}

}  // namespace
}  // namespace megatron::comm
