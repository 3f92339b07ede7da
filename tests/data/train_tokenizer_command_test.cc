// The train-tokenizer command as a user calls it.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "support/shell_command.h"
#include "temporary_folder.h"

#ifdef MEGATRON_BINARY

namespace megatron::data {
namespace {

using testing::TemporaryFolder;
using testing::write_file;

megatron::testing::CommandResult run(const std::string& arguments) {
  return megatron::testing::run_command(str_cat("'", MEGATRON_BINARY, "' train-tokenizer ", arguments, " 2>&1"));
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(TrainTokenizerCommand, WritesFilesThatDoNotDependOnWorkers) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 500; ++i) text += "the cat sat on the mat, the cat ran\n";
  write_file(folder / "a.txt", text);
  for (const char* workers : {"1", "3"}) {
    const auto outcome =
        run(str_cat("--input ", folder / "a.txt", " --vocab-size 270 --special-tokens '<|endoftext|>' --workers ",
                    workers, " --output ", folder / workers));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("270 tokens, 13 merges"), std::string::npos) << outcome.output;
  }
  for (const char* name : {"/tokenizer.json", "/vocab.json", "/merges.txt"}) {
    EXPECT_FALSE(text_of(folder / "1" + name).empty()) << name;
    EXPECT_EQ(text_of(folder / "1" + name), text_of(folder / "3" + name)) << name;
  }
  const auto json = nlohmann::json::parse(text_of(folder / "1/tokenizer.json"));
  EXPECT_EQ(json["added_tokens"][0]["content"], "<|endoftext|>");
  EXPECT_EQ(json["model"]["vocab"]["<|endoftext|>"], 0);
  EXPECT_EQ(json["model"]["merges"][0], nlohmann::json({"a", "t"}));  // 2000 times; "th" and "he" as often come later
  EXPECT_EQ(text_of(folder / "1/merges.txt").rfind("#version: 0.2\na t\n", 0), 0U);
}

megatron::testing::CommandResult tokenize(const std::string& arguments) {
  return megatron::testing::run_command(str_cat("'", MEGATRON_BINARY, "' tokenize ", arguments, " 2>&1"));
}

TEST(TrainTokenizerCommand, SentencePieceModelsReadBackWhatTheyLearned) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += str_cat("{\"text\": \"the cat ", i * 7919, " sat on the mat\\nand the dog ran ", i * i * 31, "\"}\n");
  write_file(folder / "a.jsonl", text);
  write_file(folder / "new.txt", "the dog sat\nthe zebra \xc3\xa9\n");
  for (const char* type : {"unigram", "bpe", "char"}) {
    const auto learned =
        run(str_cat("--input ", folder / "a.jsonl", " --tokenizer-type SentencePieceTokenizer --model-type ", type,
                    " --vocab-size 320 --byte-fallback --special-tokens '<pad,\"x>' --output ", folder / type));
    ASSERT_EQ(learned.status, 0) << learned.output;
    const std::string model =
        str_cat("--tokenizer-type SentencePieceTokenizer --tokenizer-model ", folder / type, "/tokenizer.model");
    const auto ids = tokenize(str_cat(model, " --input ", folder / "new.txt", " --input-format lines"));
    ASSERT_EQ(ids.status, 0) << ids.output;
    const auto first = nlohmann::json::parse(ids.output.substr(0, ids.output.find('\n')));
    constexpr std::size_t kCharacters = 12;  // of "the dog sat" and the space in front
    if (std::string(type) == "char") {
      EXPECT_EQ(first.size(), kCharacters) << ids.output;
    } else {
      EXPECT_LT(first.size(), kCharacters) << ids.output;
    }
    write_file(folder / "ids.txt", ids.output);
    const auto back = tokenize(str_cat(model, " --decode --input ", folder / "ids.txt"));
    EXPECT_NE(back.output.find("the dog sat"), std::string::npos) << back.output;
    EXPECT_NE(back.output.find("the zebra"), std::string::npos) << back.output;
  }
}

TEST(TrainTokenizerCommand, SentencePieceRefusesWhatItDoesNotRead) {
  const TemporaryFolder folder;
  write_file(folder / "small.txt", "some words\nmore words\n");
  const auto large = run(str_cat("--tokenizer-type SentencePieceTokenizer --vocab-size 5000 --input ",
                                 folder / "small.txt", " --output ", folder / "o"));
  EXPECT_EQ(large.status, 2) << large.output;
  EXPECT_NE(large.output.find("Vocabulary size too high (5000)"), std::string::npos) << large.output;
  const auto outcome =
      run("--tokenizer-type SentencePieceTokenizer --pattern gpt2 --model-type bpee --input x.txt "
          "--character-coverage 2 --vocab-size 300 --output y");
  EXPECT_EQ(outcome.status, 2);
  for (const char* part : {"--pattern: SentencePiece has no such option", "--model-type bpee: must be one of unigram",
                           "--character-coverage 2: must be from 0.98 to 1"})
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
  write_file(folder / "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n");
  const auto bad = run(str_cat("--tokenizer-type SentencePieceTokenizer --vocab-size 300 --input ",
                               folder / "bad.jsonl", " --output ", folder / "o"));
  EXPECT_EQ(bad.status, 1) << bad.output;
  EXPECT_NE(bad.output.find("bad.jsonl:2: "), std::string::npos) << bad.output;
  EXPECT_TRUE(std::filesystem::is_empty(folder / "o"));
}

TEST(TrainTokenizerCommand, AllMistakesAtOnce) {
  const TemporaryFolder folder;
  const auto outcome = run("--vocab-size 100 --pattern gtp2 --outptu x");
  EXPECT_EQ(outcome.status, 2);
  for (const char* part : {"--input: is required", "nearest: 256", "--pattern gtp2", "--outptu", "--output"})
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
  EXPECT_NE(run(str_cat("--input ", folder / "none.txt", " --vocab-size 300 --output ", folder / "o")).status, 0);
  write_file(folder / "empty.txt", "");
  const auto empty = run(str_cat("--input ", folder / "empty.txt", " --vocab-size 300 --output ", folder / "o"));
  EXPECT_EQ(empty.status, 1);
  EXPECT_NE(empty.output.find("holds no text"), std::string::npos) << empty.output;
}

}  // namespace
}  // namespace megatron::data

#endif
