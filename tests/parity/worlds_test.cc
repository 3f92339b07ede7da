// Ranks as threads and ranks as processes add in the same order: loss and norm are textually equal in the logs, and the
// checkpoints are equal files.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "mpi/mpi_process.h"
#include "support/temporary_folder.h"

namespace megatron::parity {
namespace {

using comm::ChildResult;
using testing::TemporaryFolder;

std::vector<std::string> train_command(const TemporaryFolder& folder, const std::vector<std::string>& layout) {
  std::vector<std::string> words = {MEGATRON_BINARY, "train"};
  const std::string options =
      "--mock-data --tokenizer-type NullTokenizer --vocab-size 60 --make-vocab-size-divisible-by 1 --num-layers 2 "
      "--hidden-size 32 --num-attention-heads 24 --kv-channels 8 --seq-length 24 --micro-batch-size 1 "
      "--global-batch-size 8 --train-iters 3 --lr 1e-3 --lr-decay-style constant --clip-grad 0.5 --eval-iters 0 "
      "--log-interval 1 --threads-per-rank 1 --save-interval 3";
  std::istringstream in(options);
  for (std::string word; in >> word;) words.push_back(word);
  words.insert(words.end(), layout.begin(), layout.end());
  for (const std::string& word : {std::string("--save"), folder / "save", std::string("--log-json"), folder / "log"})
    words.push_back(word);
  return words;
}

/// "loss":… and "grad_norm":… of every step, as they are written.
std::string numbers_of(const std::string& log) {
  const std::regex field("\"(iteration|loss|grad_norm|trained_tokens)\": *[^,}]*");
  std::string text;
  for (auto it = std::sregex_iterator(log.begin(), log.end(), field); it != std::sregex_iterator(); ++it)
    text += it->str() + "\n";
  return text;
}

class Worlds : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Worlds, ThreadsAndProcessesGiveTheSameBits) {
  MEGATRON_REQUIRE_MPIRUN();
  const TemporaryFolder threads, processes;
  std::vector<std::string> command = train_command(threads, GetParam());
  command.insert(command.end(), {"--world-size", "4"});
  const ChildResult local = comm::run_command(command, {}, 60);
  ASSERT_EQ(local.exit_status, 0) << local.output;
  const ChildResult mpi = comm::mpirun(4, train_command(processes, GetParam()), {}, 60);
  ASSERT_EQ(mpi.exit_status, 0) << mpi.output;
  const auto a = testing::folder_bytes(threads.path()), b = testing::folder_bytes(processes.path());
  const std::string numbers = numbers_of(a.at("log"));
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), '\n'), 4 * 3) << a.at("log");
  EXPECT_EQ(numbers_of(b.at("log")), numbers);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_GE(a.size(), 5U);
  for (const auto& [name, bytes] : a)
    if (name != "log") {
      ASSERT_TRUE(b.count(name)) << name;
      EXPECT_EQ(b.at(name), bytes) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Worlds,
                         ::testing::Values(std::vector<std::string>{"--tensor-model-parallel-size", "2",
                                                                    "--pipeline-model-parallel-size", "2"},
                                           std::vector<std::string>{"--tensor-model-parallel-size", "2",
                                                                    "--sequence-parallel"}));

}  // namespace
}  // namespace megatron::parity
