// The train-tokenizer command as a user calls it.
#include <gtest/gtest.h>

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
