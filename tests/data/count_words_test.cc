#include "data/count_words.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/check.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

std::string write(const testing::TemporaryFolder& folder, const std::string& name, const std::string& text) {
  const std::string path = folder / name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::map<std::string, std::int64_t> count(const std::vector<std::string>& inputs, int workers = 1,
                                          std::size_t block_bytes = 1 << 20) {
  const auto splitter = tokenizer::make_splitter(tokenizer::named_pattern("gpt2"), tokenizer::SplitBehavior::isolated);
  CountWordsConfig config;
  config.inputs = inputs;
  config.workers = workers;
  config.block_bytes = block_bytes;
  const tokenizer::WordCounts counts = count_words(config, *splitter);
  return {counts.counts().begin(), counts.counts().end()};
}

TEST(CountWords, LinesOfTextKeepTheirLineFeed) {
  const testing::TemporaryFolder folder;
  const std::string path = write(folder, "a.txt", "the cat\r\nthe cat\n\nend");
  EXPECT_EQ(count({path}),
            (std::map<std::string, std::int64_t>{{"the", 2}, {" cat", 2}, {"\r\n", 1}, {"\n", 2}, {"end", 1}}));
}

TEST(CountWords, DocumentsOfJsonLinesAreCutAsAWhole) {
  const testing::TemporaryFolder folder;
  const std::string path = write(folder, "a.jsonl", "{\"text\": \"a\\n\\n\\nb\"}\n\n{\"text\": \"a a\"}\n");
  EXPECT_EQ(count({path}),
            (std::map<std::string, std::int64_t>{{"a", 2}, {" a", 1}, {"b", 1}, {"\n\n", 1}, {"\n", 1}}));
}

TEST(CountWords, WorkersAndBlocksDoNotMatter) {
  const testing::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "word" + std::to_string(i % 71) + " and 12" + std::to_string(i % 7) + "\n";
  const std::vector<std::string> paths = {write(folder, "a.txt", text), write(folder, "b.txt", text)};
  const auto one = count(paths);
  EXPECT_EQ(one.at("word"), 6000);
  EXPECT_EQ(count(paths, 3, 100), one);
}

TEST(CountWords, ABadLineIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string good = write(folder, "good.jsonl", "{\"text\": \"a\"}\n");
  const std::string bad = write(folder, "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\"}\n{\"text\": 3}\n");
  try {
    count({good, bad}, 2);
    FAIL() << "no error";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("bad.jsonl:3: "), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace megatron::data
