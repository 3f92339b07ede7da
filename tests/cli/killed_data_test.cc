// kill -9 while text is being tokenised: nothing stands under a final name, the same command goes on, and what it ends
// with are the bytes of an undisturbed run.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "base/check.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::TemporaryFolder;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kKills = 5, kMostAttempts = 60;

/// Runs the binary; kills it after `seconds` if it lives that long. Returns whether it was killed; else it succeeded.
bool run_and_kill(const std::vector<std::string>& args, double seconds) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<std::string> words = args;
    words.insert(words.begin(), MEGATRON_BINARY);
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    if (std::freopen("/dev/null", "w", stdout) == nullptr || std::freopen("/dev/null", "w", stderr) == nullptr)
      ::_exit(125);
    ::execv(pointers[0], pointers.data());
    ::_exit(126);
  }
  const auto end = Clock::now() + Seconds(seconds);
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() >= end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (WIFSIGNALED(status)) return true;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return false;
}

/// The .bin and .idx files in a folder.
std::map<std::string, std::string> finished(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& [name, bytes] : testing::folder_bytes(folder))
    if (name.ends_with(".bin") || name.ends_with(".idx")) files[name] = bytes;
  return files;
}

/// `command(folder)` writes its data set into `folder`.
template <typename Command>
void expect_survives_kills(const std::string& whole, const std::string& place, const Command& command) {
  std::filesystem::create_directories(whole);
  std::filesystem::create_directories(place);
  const auto start = Clock::now();
  ASSERT_FALSE(run_and_kill(command(whole), 600));
  double latest = Seconds(Clock::now() - start).count();
  const auto expected = finished(whole);
  ASSERT_EQ(expected.size(), 2U);
  const std::uint32_t seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 random(seed);
  int kills = 0;
  for (int attempt = 0; kills < kKills && attempt < kMostAttempts; ++attempt) {
    const double moment = std::uniform_real_distribution<double>(0.0, latest)(random);
    const bool killed = run_and_kill(command(place), moment);
    const auto files = finished(place);
    // The index is published last.
    const bool published =
        std::any_of(files.begin(), files.end(), [](const auto& file) { return file.first.ends_with(".idx"); });
    if (killed && !published) {
      ++kills;
      continue;
    }
    // It had come to its end, or past it (a run trains after that): later moments are of no use. The first run may have
    // been slower, on a machine with other work.
    latest = moment;
    EXPECT_TRUE(files == expected) << "attempt " << attempt << ", killed " << killed << ": " << files.size()
                                   << " files";
    std::filesystem::remove_all(place);
    std::filesystem::create_directories(place);
  }
  EXPECT_EQ(kills, kKills);
  ASSERT_FALSE(run_and_kill(command(place), 600));
  EXPECT_TRUE(finished(place) == expected);
}

class KilledData : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_ / "a.jsonl");
    for (int i = 0; i < 150'000; ++i)
      text << "{\"text\": \"some words of line number " << i * 7919 % 100'003 << "\"}\n";
  }
  TemporaryFolder folder_;
};

TEST_F(KilledData, PreprocessContinues) {
  expect_survives_kills(folder_ / "whole", folder_ / "killed", [&](const std::string& folder) {
    return std::vector<std::string>{
        "preprocess", "--input",          folder_ / "a.jsonl", "--output-prefix", folder + "/o",       "--workers",
        "2",          "--tokenizer-type", "ByteLevel",         "--append-eod",    "--resume-interval", "1"};
  });
}

TEST_F(KilledData, TrainingFromRawTextContinues) {
  expect_survives_kills(folder_ / "whole", folder_ / "killed", [&](const std::string& folder) {
    return std::vector<std::string>{"train",
                                    "--num-layers",
                                    "1",
                                    "--hidden-size",
                                    "16",
                                    "--num-attention-heads",
                                    "2",
                                    "--seq-length",
                                    "32",
                                    "--micro-batch-size",
                                    "1",
                                    "--train-iters",
                                    "1",
                                    "--lr",
                                    "1e-3",
                                    "--eval-iters",
                                    "0",
                                    "--tokenizer-type",
                                    "ByteLevel",
                                    "--train-data",
                                    folder_ / "a.jsonl",
                                    "--data-cache-path",
                                    folder};
  });
}

}  // namespace
}  // namespace megatron
