// inspect data, merge-datasets, split-dataset and training from raw text, as a user calls them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/indexed_dataset.h"
#include "support/reference_data.h"
#include "support/shell_command.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::CommandResult;
using testing::TemporaryFolder;

CommandResult run(const std::string& arguments) {
  return testing::run_command(str_cat("'", MEGATRON_BINARY, "' ", arguments));
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(InspectData, EqualsEveryReferenceCaseOfTheDefaults) {
  const auto dir = testing::reference_dir() / "golden" / "mcore" / "dataset";
  MEGATRON_REQUIRE_REFERENCE(dir / "gpt_dataset.json");
  std::ifstream in(dir / "gpt_dataset.json");
  int compared = 0;
  for (const json& record : json::parse(in)) {
    if (record["tokenizer"] != "null_eod" || !record["options"].empty() || !record.contains("ok")) continue;
    if (record["split"].is_null() || record["ok"]["len"].get<int>() == 0 || compared == 12) continue;
    const json& ok = record["ok"];
    const std::string samples = record["num_samples"].is_null()
                                    ? std::string()
                                    : str_cat(" --num-samples ", record["num_samples"].get<std::int64_t>());
    const auto result =
        run(str_cat("inspect data --data-path '", (dir / record["prefix"].get<std::string>()).string(), "' --split ",
                    record["split"].get<std::string>(), " --split-name ", record["split_name"].get<std::string>(),
                    " --seed ", record["seed"].get<int>(), " --seq-length ", record["sequence_length"].get<int>(),
                    samples, " --samples 0:1 --tokenizer-type NullTokenizer --vocab-size 2000000 --eod-id 7 --json"));
    ASSERT_EQ(result.status, 0) << record["name"] << result.output;
    const json shown = json::parse(result.output);
    EXPECT_EQ(shown["num_epochs"], ok["num_epochs"]) << record["name"];
    EXPECT_EQ(shown["len"], ok["len"]) << record["name"];
    EXPECT_EQ(shown["document_index_md5"], ok["document_index"]["md5"]) << record["name"];
    EXPECT_EQ(shown["sample_index_md5"], ok["sample_index"]["md5"]) << record["name"];
    EXPECT_EQ(shown["shuffle_index_md5"], ok["shuffle_index"]["md5"]) << record["name"];
    const json& first = ok["samples"][0];
    for (const char* key : {"tokens", "labels", "loss_mask", "position_ids"})
      EXPECT_EQ(shown["samples"][0][key], first[key]) << record["name"] << " " << key;
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

/// A corpus of lines, as a file and as tokens.
void write_corpus(const TemporaryFolder& folder) {
  std::ofstream text(folder / "corpus.jsonl");
  for (int i = 0; i < 400; ++i) text << "{\"text\": \"line " << i << " of a text, " << i * 7 % 13 << "\"}\n";
  text.close();
  const auto made = run(str_cat("preprocess --input ", folder / "corpus.jsonl", " --output-prefix ", folder / "corpus",
                                " --tokenizer-type ByteLevel --append-eod 2>&1"));
  EXPECT_EQ(made.status, 0) << made.output;
}

TEST(InspectData, TextShowsDocumentsLengthsAndSamples) {
  const TemporaryFolder folder;
  write_corpus(folder);
  const std::string data = str_cat("inspect data --data-path ", folder / "corpus_text_document",
                                   " --tokenizer-type ByteLevel --seq-length 32 --split 1,0,0");
  const auto result = run(data);
  EXPECT_EQ(result.status, 0);
  for (const char* part : {"train", "400", "document lengths: ", "--- sample 0 of ", "of a text", "<eod>"})
    EXPECT_TRUE(contains(result.output, part)) << part << "\n" << result.output;
  const json shown = json::parse(run(data + " --json").output);
  EXPECT_EQ(shown["sources"][0]["documents"], 400);
  EXPECT_EQ(shown["lengths"]["documents"], 400);
  EXPECT_EQ(shown["tokenizer"]["eod"], 256);
  const auto bad = run(data + " --samples 5:1000000 --split-nme x 2>&1");
  EXPECT_EQ(bad.status, 2);
  EXPECT_TRUE(contains(bad.output, "nearest is --split-name")) << bad.output;
  EXPECT_EQ(run(data + " --samples 5:1000000 2>/dev/null").status, 2);
}

TEST(DataCommands, MergeAndSplit) {
  const TemporaryFolder folder;
  write_corpus(folder);
  std::filesystem::create_directories(folder / "parts");
  const auto split = run(str_cat("split-dataset --input ", folder / "corpus_text_document", " --output-prefix ",
                                 folder / "parts/p", " --parts 3"));
  EXPECT_EQ(split.status, 0);
  EXPECT_TRUE(contains(split.output, "p_00000.bin and .idx: 134 documents")) << split.output;
  const auto merged = run(str_cat("merge-datasets --input ", folder / "parts", " --output-prefix ", folder / "again"));
  EXPECT_EQ(merged.status, 0);
  EXPECT_TRUE(contains(merged.output, "400 documents")) << merged.output;
  for (const char* suffix : {".bin", ".idx", ".tokenizer.json"})
    EXPECT_EQ(read_file((folder / "again") + suffix), read_file((folder / "corpus_text_document") + suffix));
  EXPECT_EQ(run("merge-datasets --input x 2>/dev/null").status, 2);
  EXPECT_EQ(
      run(str_cat("split-dataset --input ", folder / "corpus_text_document", " --output-prefix x 2>/dev/null")).status,
      2);
}

std::string train(const TemporaryFolder& folder, const std::string& data) {
  return str_cat(
      "train --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 32 --micro-batch-size 2 "
      "--global-batch-size 4 --train-iters 4 --lr 1e-3 --log-interval 1 --eval-iters 1 --threads-per-rank 1 "
      "--split 90,10,0 --log-json ",
      folder / "log", " ", data, " 2>&1");
}

std::vector<double> losses(const TemporaryFolder& folder) {
  std::vector<double> found;
  std::ifstream in(folder / "log");
  for (std::string line; std::getline(in, line);) {
    const json record = json::parse(line);
    if (record.contains("loss")) found.push_back(record["loss"].get<double>());
  }
  in.close();
  std::filesystem::remove(folder / "log");
  return found;
}

TEST(DataCommands, RawTextTrainsAsPreparedTokens) {
  const TemporaryFolder folder;
  write_corpus(folder);
  const std::string prepared = str_cat("--tokenizer-type ByteLevel --data-path ", folder / "corpus_text_document");
  const auto one = run(train(folder, prepared));
  ASSERT_EQ(one.status, 0) << one.output;
  const std::vector<double> expected = losses(folder);
  EXPECT_EQ(expected.size(), 4U);
  const std::string raw = str_cat("--tokenizer-type ByteLevel --train-data ", folder / "corpus.jsonl",
                                  " --data-cache-path ", folder / "cache");
  for (const char* said : {"tokenising 1 files into", "using the tokens in"}) {
    const auto two = run(train(folder, raw));
    ASSERT_EQ(two.status, 0) << two.output;
    EXPECT_TRUE(contains(two.output, said)) << two.output;
    for (const char* line :
         {"data: train 360 documents", "sources: ", "document lengths: ", "first sample: ", "notes: "})
      EXPECT_TRUE(contains(two.output, line)) << line << two.output;
    EXPECT_EQ(losses(folder), expected);
  }
  const auto refused = run(train(folder, str_cat("--tokenizer-type ByteLevel --train-data ", folder / "corpus.jsonl")));
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(contains(refused.output, "--data-cache-path")) << refused.output;
}

// Training and `preprocess` fill the options of a tokenizer from different tables: both must name the same tokenizer.
TEST(DataCommands, ATokenizerOfFilesIsTheSameInEveryCommand) {
  const TemporaryFolder folder;
  write_corpus(folder);
  const auto learned = run(str_cat("train-tokenizer --input ", folder / "corpus.jsonl", " --vocab-size 270 --output ",
                                   folder / "bpe", " --special-tokens '<|endoftext|>'"));
  ASSERT_EQ(learned.status, 0) << learned.output;
  const std::string gpt2 = str_cat("--tokenizer-type GPT2BPETokenizer --vocab-file ", folder / "bpe/vocab.json",
                                   " --merge-file ", folder / "bpe/merges.txt");
  const std::string hf = str_cat("--tokenizer-type HuggingFaceTokenizer --tokenizer-model ", folder / "bpe");
  for (const std::string& tokenizer : {gpt2, hf}) {
    const auto prepared = run(str_cat("preprocess --input ", folder / "corpus.jsonl", " --output-prefix ",
                                      folder / "bpe_corpus", " --append-eod ", tokenizer));
    ASSERT_EQ(prepared.status, 0) << prepared.output;
    const auto trained = run(train(folder, str_cat(tokenizer, " --data-path ", folder / "bpe_corpus_text_document")));
    ASSERT_EQ(trained.status, 0) << trained.output;
    EXPECT_TRUE(contains(trained.output, "vocabulary 270 (padded to 384)")) << trained.output;
    EXPECT_FALSE(contains(trained.output, "no vocabulary")) << trained.output;
    EXPECT_EQ(losses(folder).size(), 4U);
  }
  const auto saved = run(train(folder, str_cat(hf, " --data-path ", folder / "bpe_corpus_text_document",
                                               " --save-interval 4 --save ", folder / "ck")));
  ASSERT_EQ(saved.status, 0) << saved.output;
  std::filesystem::rename(folder / "bpe", folder / "moved");
  const std::string generate = str_cat("generate --load ", folder / "ck", " --prompt the --num-tokens 3 2>&1");
  const auto missing = run(generate);
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(contains(missing.output, "the option says where the tokenizer's file is now")) << missing.output;
  const auto found = run(str_cat(generate, " --tokenizer-model ", folder / "moved"));
  EXPECT_EQ(found.status, 0) << found.output;
  EXPECT_EQ(found.output.rfind("the", 0), 0U) << found.output;
}

TEST(DataCommands, FloatsAreMergedAndLookedAtButNotTrainedOn) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "in");
  for (const char* name : {"a", "b"}) {
    data::IndexedDatasetWriter writer(folder / "in/" + name, data::TokenType::float32);
    writer.add_values(std::vector<double>{0.5, -2.0, 3.25});
    writer.end_document();
    writer.add_values(std::vector<double>{8.0});
    writer.end_document();
    writer.finish();
  }
  ASSERT_EQ(run("merge-datasets --input " + (folder / "in") + " --output-prefix " + (folder / "all")).status, 0);
  const json shown = json::parse(run("inspect data --json --data-path " + (folder / "all")).output)["sources"][0];
  EXPECT_EQ(shown["dtype"], "float32");
  EXPECT_EQ(shown["documents"], 4);
  EXPECT_EQ(shown["values"], 8);
  EXPECT_EQ(shown["longest"], 3);
  EXPECT_EQ(shown["first_values"], json::parse("[0.5,-2.0,3.25,8.0,0.5,-2.0,3.25,8.0]"));
  const auto text = run("inspect data --data-path " + (folder / "all"));
  EXPECT_TRUE(contains(text.output, "float32 values, no token ids: 4 documents")) << text.output;
  const auto refused =
      run(train(folder, "--tokenizer-type NullTokenizer --vocab-size 300 --data-path " + (folder / "all")));
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(contains(refused.output, "holds float32 values; a run trains on token ids")) << refused.output;
}

TEST(DataCommands, AnotherTokenizerIsRefused) {
  const TemporaryFolder folder;
  write_corpus(folder);
  const auto result = run(train(folder, str_cat("--tokenizer-type NullTokenizer --vocab-size 300 --data-path ",
                                                folder / "corpus_text_document")));
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.output, "was made by another tokenizer: ByteLevel with 257 ids")) << result.output;
}

TEST(DataCommands, FullValidationOfSeveralSets) {
  const TemporaryFolder folder;
  write_corpus(folder);
  const std::string prefix = folder / "corpus_text_document";
  ASSERT_EQ(run(str_cat("split-dataset --input ", prefix, " --output-prefix ", folder / "p", " --split 8,1,1")).status,
            0);
  std::string command = train(folder, str_cat("--tokenizer-type ByteLevel --train-data-path ", folder / "p_train",
                                              " --valid-data-path ", folder / "p_valid", " ", folder / "p_test",
                                              " --full-validation --multiple-validation-sets --eval-interval 2"));
  command.erase(command.find("--split 90,10,0 "), 16);
  const auto result = run(command);
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(contains(result.output, "of " + (folder / "p_valid"))) << result.output;
  EXPECT_TRUE(contains(result.output, "of " + (folder / "p_test"))) << result.output;
  std::map<std::string, int> evaluations;
  std::ifstream log(folder / "log");
  for (std::string line; std::getline(log, line);) {
    const json record = json::parse(line);
    if (record.contains("validation_loss")) ++evaluations[record.at("validation_set").get<std::string>()];
  }
  EXPECT_EQ(evaluations, (std::map<std::string, int>{{folder / "p_valid", 3}, {folder / "p_test", 3}}));
}

}  // namespace
}  // namespace megatron
