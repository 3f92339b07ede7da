// Which samples a resumed run sees, from the command line: those that the uninterrupted run sees, whatever the layout.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "data/indexed_dataset.h"
#include "support/shell_command.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::CommandResult;
using testing::TemporaryFolder;

constexpr std::int64_t kSamples = 12, kLength = 16;

CommandResult run(const std::string& arguments) {
  return testing::run_command(str_cat("'", MEGATRON_BINARY, "' ", arguments, " 2>&1"));
}

/// One document of 12 samples, all of them different.
void write_data(const std::string& prefix, std::int64_t step = 1) {
  data::IndexedDatasetWriter writer(prefix, data::TokenType::uint16);
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i <= kSamples * kLength; ++i) tokens.push_back(i * i * step / 7 % 61);
  writer.add_sequence(tokens);
  writer.end_document();
  writer.finish();
}

/// 9 steps of 4 samples: three times through the data.
std::string train(const TemporaryFolder& folder, const std::string& more, const std::string& data = "") {
  return str_cat(
      "train --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --global-batch-size 4 "
      "--train-iters 9 --lr 3e-3 --lr-decay-style constant --log-interval 1 --eval-iters 0 --split 100,0,0 "
      "--tokenizer-type NullTokenizer --vocab-size 64 --hidden-dropout 0 --attention-dropout 0 --log-json ",
      folder / "log", " --data-path ", data.empty() ? folder / "data" : data, " ", more);
}

struct Steps {
  std::vector<std::int64_t> consumed;
  std::vector<double> losses;
};

/// The steps in the log, which is removed.
Steps take_log(const TemporaryFolder& folder) {
  Steps steps;
  std::ifstream in(folder / "log");
  for (std::string line; std::getline(in, line);) {
    const json record = json::parse(line);
    if (!record.contains("iteration") || !record.contains("loss") || record.contains("summary")) continue;
    steps.consumed.push_back(record["consumed_samples"].get<std::int64_t>());
    steps.losses.push_back(record["loss"].get<double>());
  }
  std::filesystem::remove(folder / "log");
  return steps;
}

void expect_tail(const Steps& rest, const Steps& straight, std::int64_t from, double tolerance) {
  ASSERT_EQ(std::ssize(rest.losses), 9 - from);
  for (std::size_t i = 0; i < rest.losses.size(); ++i) {
    const auto step = i + static_cast<std::size_t>(from);
    EXPECT_EQ(rest.consumed[i], straight.consumed[step]);
    EXPECT_NEAR(rest.losses[i] / straight.losses[step], 1.0, tolerance) << "step " << step + 1;
  }
}

class ResumeData : public ::testing::Test {
 protected:
  void SetUp() override { write_data(folder_ / "data"); }
  Steps straight(const std::string& more) {
    const CommandResult done = run(train(folder_, more));
    EXPECT_EQ(done.status, 0) << done.output;
    return take_log(folder_);
  }
  /// A run that ends after `step` and leaves a checkpoint in ck<step>.
  std::string stopped_at(std::int64_t step, const std::string& more) {
    const std::string ck = folder_ / str_cat("ck", step);
    const CommandResult done =
        run(train(folder_, str_cat(more, " --exit-interval ", step, " --save-interval 100 --save ", ck)));
    EXPECT_EQ(done.status, 0) << done.output;
    std::filesystem::remove(folder_ / "log");
    return " --load " + ck;
  }
  TemporaryFolder folder_;
};

// In the middle of an epoch, at its end, in a later one.
TEST_F(ResumeData, SamplesDoNotDependOnRanksMicroBatchesOrThreads) {
  const std::string before = "--micro-batch-size 1 --threads-per-rank 1";
  const Steps whole = straight(before);
  ASSERT_EQ(whole.losses.size(), 9U);
  for (const std::int64_t step : {2, 3, 5}) {
    const std::string load = stopped_at(step, before);
    for (const char* layout :
         {"--micro-batch-size 2 --world-size 2 --threads-per-rank 1", "--micro-batch-size 1 --world-size 4",
          "--micro-batch-size 4 --threads-per-rank 2 --num-workers 3 --num-dataset-builder-threads 2",
          "--micro-batch-size 1 --world-size 4 --tensor-model-parallel-size 2 --threads-per-rank 1"}) {
      SCOPED_TRACE(str_cat("stopped at ", step, ", then ", layout));
      const CommandResult done = run(train(folder_, layout + load));
      ASSERT_EQ(done.status, 0) << done.output;
      EXPECT_NE(done.output.find(str_cat("next sample index ", 4 * step)), std::string::npos) << done.output;
      expect_tail(take_log(folder_), whole, step, 1e-5);
    }
  }
}

// The order of every epoch is its own; a resumed run is in the right one. Same layout: the same bits.
TEST_F(ResumeData, EpochsOfTheCyclicOrderGoOn) {
  const std::string options = "--micro-batch-size 2 --world-size 2 --threads-per-rank 1 --dataloader-type cyclic";
  const Steps whole = straight(options);
  for (const std::int64_t step : {2, 3, 4, 7}) {
    const std::string load = stopped_at(step, options);
    const CommandResult done = run(train(folder_, options + load));
    ASSERT_EQ(done.status, 0) << done.output;
    expect_tail(take_log(folder_), whole, step, 0.0);
  }
}

TEST_F(ResumeData, AnotherBlendOrSeedIsToldWithWhatWasRead) {
  write_data(folder_ / "other", 3);
  const std::string a = folder_ / "data", b = folder_ / "other", ck = folder_ / "ck";
  const std::string options = "--micro-batch-size 1 --threads-per-rank 1 ", blend = str_cat("3 ", a, " 1 ", b);
  const CommandResult first =
      run(train(folder_, options + "--exit-interval 2 --save-interval 100 --save " + ck, blend));
  ASSERT_EQ(first.status, 0) << first.output;
  const CommandResult same = run(train(folder_, options + "--exit-interval 3 --load " + ck, blend));
  ASSERT_EQ(same.status, 0) << same.output;
  EXPECT_EQ(same.output.find("warning:"), std::string::npos) << same.output;
  const std::string changed = str_cat("1 ", a, " 1 ", b);
  const CommandResult other = run(train(folder_, options + "--seed 7 --exit-interval 3 --load " + ck, changed));
  ASSERT_EQ(other.status, 0) << other.output;
  for (const std::string& line :
       {str_cat("warning: --data-path: the run of the checkpoint had ", blend, " (whose 8 samples so far: 6 of ", a,
                ", 2 of ", b, "), this one has ", changed, ": other samples follow, from index 8 on"),
        std::string("warning: --seed: the run of the checkpoint had 1234, this one has 7")})
    EXPECT_NE(other.output.find(line), std::string::npos) << line << "\n" << other.output;
}

}  // namespace
}  // namespace megatron
