// What users of other trainers reported about data, as commands of ours.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
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
using Ints = std::vector<std::int64_t>;

CommandResult run(const std::string& arguments) {
  return testing::run_command(str_cat("'", MEGATRON_BINARY, "' ", arguments, " 2>&1"));
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void write_data(const std::string& prefix, const std::vector<Ints>& documents) {
  data::IndexedDatasetWriter writer(prefix, data::TokenType::uint16);
  for (const Ints& tokens : documents) {
    writer.add_sequence(tokens);
    writer.end_document();
  }
  writer.finish();
}

Ints counting(std::int64_t size) {
  Ints tokens;
  for (std::int64_t i = 0; i < size; ++i) tokens.push_back(i % 31 + 1);
  return tokens;
}

/// Sequences of 16, a global batch of 4.
std::string train(const TemporaryFolder& folder, const std::string& more) {
  return str_cat(
      "train --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --micro-batch-size 1 "
      "--global-batch-size 4 --lr 1e-3 --lr-decay-style constant --log-interval 1 --threads-per-rank 1 "
      "--tokenizer-type NullTokenizer --data-path ",
      folder / "data", " --log-json ", folder / "log ", more);
}

std::vector<json> take_log(const TemporaryFolder& folder) {
  std::vector<json> records;
  std::ifstream in(folder / "log");
  for (std::string line; std::getline(in, line);) records.push_back(json::parse(line));
  std::filesystem::remove(folder / "log");
  return records;
}

// "Token ids beyond the vocabulary crash on one rank and become zeros under tensor parallelism."
TEST(DataUserReports, IdsBeyondTheVocabularyAreRefusedAlikeAtEveryTensorSize) {
  const TemporaryFolder folder;
  Ints tokens = counting(100);
  tokens[7] = 41;
  write_data(folder / "data", {counting(50), tokens});
  for (const char* layout : {"", " --tensor-model-parallel-size 2 --world-size 2"}) {
    const CommandResult done = run(train(folder, str_cat("--vocab-size 37 --train-iters 1 --split 100,0,0", layout)));
    EXPECT_EQ(done.status, 2);
    EXPECT_TRUE(contains(
        done.output, (folder / "data.bin") + ": document 1, position 7: token id 41 is outside the vocabulary of 37"))
        << done.output;
    EXPECT_FALSE(contains(done.output, "iteration        1")) << done.output;
  }
}

// "Three samples and a batch of four fail." Samples are repeated, and the loss is that of four samples.
TEST(DataUserReports, ThreeSamplesAndABatchOfFour) {
  const TemporaryFolder folder;
  write_data(folder / "data", {counting(3 * 16 + 1)});
  const std::string options = "--vocab-size 64 --train-iters 2 --eval-iters 0 --split 100,0,0";
  const CommandResult done = run(train(folder, options));
  ASSERT_EQ(done.status, 0) << done.output;
  EXPECT_TRUE(contains(done.output, "8 samples = 2.6")) << done.output;
  EXPECT_TRUE(contains(done.output, "validation is disabled: it has no share of the data")) << done.output;
  EXPECT_EQ(take_log(folder)[0]["trained_tokens"], 4 * 16);
  // An order that goes through the same samples epoch by epoch is given only as many as are asked for.
  const CommandResult cyclic = run(train(folder, options + " --dataloader-type cyclic"));
  EXPECT_EQ(cyclic.status, 0) << cyclic.output;
}

// "Validation begins at sample 0 after every resume."
TEST(DataUserReports, ValidationGoesOnWhereItStood) {
  const TemporaryFolder folder;
  Ints tokens;
  for (std::int64_t i = 0; i < 800; ++i) tokens.push_back(i * i / 5 % 61);
  write_data(folder / "data", {tokens, tokens, tokens, tokens, tokens, tokens});
  const std::string options = "--vocab-size 64 --train-iters 6 --eval-interval 1 --eval-iters 1 --split 50,50,0 ";
  ASSERT_EQ(run(train(folder, options)).status, 0);
  const auto straight = take_log(folder);
  const std::string ck = folder / "ck";
  ASSERT_EQ(run(train(folder, options + "--exit-interval 3 --save-interval 100 --save " + ck)).status, 0);
  auto resumed = take_log(folder);
  ASSERT_EQ(run(train(folder, options + "--load " + ck)).status, 0);
  for (const json& record : take_log(folder)) resumed.push_back(record);
  // Of the evaluations between steps; a run that ends evaluates once more.
  const auto losses = [](const std::vector<json>& records) {
    std::map<std::int64_t, double> found;
    for (const json& record : records)
      if (record.contains("validation_loss") && record.contains("iteration"))
        found.emplace(record["iteration"].get<std::int64_t>(), record["validation_loss"].get<double>());
    return found;
  };
  EXPECT_EQ(losses(straight).size(), 6U);
  EXPECT_EQ(losses(resumed), losses(straight));
}

// "Whether end tokens train is a default nobody sees": the log counts the targets that do.
TEST(DataUserReports, TheLogCountsTheTargetsThatTrain) {
  const TemporaryFolder folder;
  std::vector<Ints> documents;
  for (int i = 0; i < 40; ++i) {
    documents.push_back(counting(7));
    documents.back().push_back(63);
  }
  write_data(folder / "data", documents);
  const std::string options = "--vocab-size 64 --train-iters 2 --eval-iters 0 --split 100,0,0 ";
  ASSERT_EQ(run(train(folder, options)).status, 0);
  EXPECT_EQ(take_log(folder)[0]["trained_tokens"], 64);
  const CommandResult masked = run(train(folder, options + "--eod-mask-loss --log-throughput"));
  ASSERT_EQ(masked.status, 0) << masked.output;
  EXPECT_TRUE(contains(masked.output, "trained tokens: 112 | computed tokens: 128")) << masked.output;
  EXPECT_EQ(take_log(folder)[0]["trained_tokens"], 56);
}

// "Two jobs with one cache overwrite each other's files."
TEST(DataUserReports, TwoRunsAtOnceShareACache) {
  const TemporaryFolder folder;
  write_data(folder / "a", {counting(300), counting(500)});
  write_data(folder / "b", {counting(400)});
  const std::string cache = folder / "cache";
  const std::string command =
      str_cat("'", MEGATRON_BINARY, "' inspect data --json --seq-length 16 --num-samples 200 --split 100,0,0 ",
              "--data-path 3 ", folder / "a", " 1 ", folder / "b", " --data-cache-path ", cache);
  std::map<std::string, std::string> first;
  for (int round = 0; round < 20; ++round) {
    std::filesystem::remove_all(cache);
    const CommandResult done = testing::run_command(str_cat(command, " >", folder / "x", " 2>&1 & ", command, " >",
                                                            folder / "y", " 2>&1; s=$?; wait $! && exit $s"));
    const auto said = testing::folder_bytes(folder.path());
    ASSERT_EQ(done.status, 0) << said.at("x") << said.at("y");
    EXPECT_EQ(said.at("x"), said.at("y"));
    const auto files = testing::folder_bytes(cache);
    EXPECT_EQ(files.size(), 14U);  // of two files four each and of the blend three, and checksums of each
    if (round == 0) first = files;
    EXPECT_TRUE(files == first) << "round " << round;
  }
}

// "A blend by stages always used the last stage": there are no stages, and the option for them says so.
TEST(DataUserReports, PhasesOfDataAreRefusedByName) {
  const CommandResult done = run("validate --num-layers 1 --phase-transition-iterations 3");
  EXPECT_EQ(done.status, 2);
  EXPECT_TRUE(contains(done.output, "--phase-transition-iterations")) << done.output;
}

}  // namespace
}  // namespace megatron
