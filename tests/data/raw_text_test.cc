#include "data/raw_text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/check.h"
#include "compressed.h"
#include "data/build.h"
#include "data/indexed_dataset.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;
using Lines = std::vector<std::string>;

const tokenizer::Tokenizer& bytes() {
  static const auto tokenizer = tokenizer::create_tokenizer("ByteLevel");
  return *tokenizer;
}

std::string json_lines(int count, const std::string& word) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"text\": \"" + word + " " + std::to_string(i) + "\"}\n";
  return text;
}

class RawText : public ::testing::Test {
 protected:
  RawText() {
    std::filesystem::create_directories(folder_ / "corpus/deep");
    write_file(folder_ / "corpus/b.jsonl", json_lines(300, "plain"));
    write_file(folder_ / "corpus/a.jsonl.zst", testing::zstd(json_lines(200, "packed")));
    write_file(folder_ / "corpus/deep/c.txt", "one\ntwo\n");
    write_file(folder_ / "corpus/notes.md", "not this");
    config_.sources = {folder_ / "corpus"};
    config_.append_eod = true;
    config_.cache_folder = folder_ / "cache/deep";
    config_.workers = 2;
    config_.say = [this](const std::string& line) { said_.push_back(line); };
  }
  std::string tokenize() {
    said_.clear();
    return tokenize_raw_text(config_, bytes())[0];
  }
  bool reused() const { return !said_.empty() && said_.back().starts_with("using the tokens in "); }

  TemporaryFolder folder_;
  RawTextConfig config_;
  Lines said_;
};

TEST_F(RawText, FilesOfAFolderInTheOrderOfTheirNames) {
  EXPECT_EQ(raw_text_files(config_.sources),
            (Lines{folder_ / "corpus/a.jsonl.zst", folder_ / "corpus/b.jsonl", folder_ / "corpus/deep/c.txt"}));
  EXPECT_THROW(raw_text_files({folder_ / "missing"}), IoError);
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_THROW(raw_text_files({folder_ / "empty"}), ConfigError);
}

TEST_F(RawText, SameBytesAsPreprocess) {
  const std::string prefix = tokenize();
  PreprocessConfig config;
  config.inputs = raw_text_files(config_.sources);
  config.append_eod = true;
  config.output_prefix = folder_ / "direct";
  preprocess(config, bytes());
  for (const char* suffix : {".bin", ".idx", ".tokenizer.json"})
    EXPECT_EQ(read_file(prefix + suffix), read_file((folder_ / "direct_text_document") + suffix));
  EXPECT_EQ(IndexedDataset(prefix).num_documents(), 502);
}

TEST_F(RawText, WhatIsThereIsUsedAndChangesAreNoticed) {
  const std::string first = tokenize();
  EXPECT_FALSE(reused());
  EXPECT_EQ(tokenize(), first);
  EXPECT_TRUE(reused());
  // The same content under another time of change is the same text.
  std::filesystem::last_write_time(folder_ / "corpus/b.jsonl", std::filesystem::file_time_type::clock::now());
  EXPECT_EQ(tokenize(), first);
  EXPECT_TRUE(reused());
  write_file(folder_ / "corpus/b.jsonl", json_lines(300, "pleas"));
  const std::string changed = tokenize();
  EXPECT_NE(changed, first);
  EXPECT_FALSE(reused());
  config_.append_eod = false;
  EXPECT_NE(tokenize(), changed);
  config_.append_eod = true;
  write_file(folder_ / "corpus/b.jsonl", "{\"text\": \"1 2 3\"}\n");
  config_.sources = {folder_ / "corpus/b.jsonl"};
  const std::string byte_level = tokenize();
  const auto null = tokenizer::create_tokenizer("NullTokenizer", {10, {}, {}});
  EXPECT_NE(tokenize_raw_text(config_, *null)[0], byte_level);
}

TEST_F(RawText, SeveralRunsAtOnceAndAKill) {
  const auto start = [&](bool dies) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    config_.say = {};
    if (dies) config_.report = [](const PreprocessProgress&) { ::kill(::getpid(), SIGKILL); };
    try {
      tokenize_raw_text(config_, bytes());
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  };
  const pid_t dead = start(true);
  int status = 0;
  ::waitpid(dead, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  for (const auto& entry : std::filesystem::directory_iterator(config_.cache_folder))
    EXPECT_FALSE(entry.path().extension() == ".idx" || entry.path().extension() == ".bin") << entry.path();
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) children.push_back(start(false));
  for (const pid_t child : children) {
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(IndexedDataset(tokenize()).num_documents(), 502);
  EXPECT_TRUE(reused());
}

/// A signal ends a start that tokenises, and one that waits for another.
TEST_F(RawText, MayBeEndedWhileItWorksAndWhileItWaits) {
  struct Ended {};
  config_.interrupt = [] { throw Ended(); };
  EXPECT_THROW(tokenize(), Ended);
  ASSERT_FALSE(said_.empty());
  EXPECT_TRUE(said_.back().starts_with("tokenising 3 files into ")) << said_.back();
  const std::string lock = said_.back().substr(said_.back().rfind(' ') + 1) + ".lock";
  const int held = ::open(lock.c_str(), O_RDWR);
  ASSERT_EQ(::flock(held, LOCK_EX | LOCK_NB), 0) << lock;
  int asked = 0;
  config_.interrupt = [&] {
    if (++asked == 3) throw Ended();
  };
  EXPECT_THROW(tokenize(), Ended);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(said_.back(), "another run tokenises the same text: waiting for it");
  ::close(held);
  EXPECT_EQ(IndexedDataset(tokenize()).num_documents(), 502);
}

TEST_F(RawText, DamagedTokensAreMadeAnew) {
  const std::string prefix = tokenize();
  const std::string whole = testing::read_file(prefix + ".bin");
  write_file(prefix + ".bin", whole.substr(0, 100));
  EXPECT_EQ(tokenize(), prefix);
  EXPECT_FALSE(reused());
  EXPECT_NE(said_.front().find("are damaged: "), std::string::npos) << said_.front();
  EXPECT_EQ(testing::read_file(prefix + ".bin"), whole);
  EXPECT_EQ(tokenize(), prefix);
  EXPECT_TRUE(reused());
}

TEST_F(RawText, ABadLineIsNamedAndLeavesNothing) {
  write_file(folder_ / "corpus/b.jsonl", "{\"text\": \"a\"}\n{}\n");
  try {
    tokenize();
    ADD_FAILURE() << "a bad line was taken";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("b.jsonl:2: missing key"), std::string::npos) << error.what();
  }
  for (const auto& entry : std::filesystem::directory_iterator(config_.cache_folder))
    EXPECT_FALSE(entry.path().extension() == ".idx" || entry.path().extension() == ".bin") << entry.path();
}

TEST_F(RawText, TrainsAsTheFileThatPreprocessWrites) {
  PreprocessConfig direct;
  direct.inputs = raw_text_files(config_.sources);
  direct.append_eod = true;
  direct.output_prefix = folder_ / "direct";
  preprocess(direct, bytes());
  BuildOptions options;
  options.seq_length = 32;
  options.tokenizer = &bytes();
  options.requested = {50, 0, 0};
  spec::DataSpec raw, prepared;
  raw.train_data = {folder_ / "corpus"};
  EXPECT_THROW(build_datasets(raw, options), ConfigError) << "the folder for its tokens is missing";
  raw.data_cache_path = folder_ / "cache";
  prepared.data_path = {folder_ / "direct_text_document"};
  const Datasets a = build_datasets(raw, options), b = build_datasets(prepared, options);
  ASSERT_EQ(a.train->size(), b.train->size());
  for (std::int64_t i = 0; i < a.train->size(); ++i) EXPECT_EQ(a.train->get(i).tokens, b.train->get(i).tokens);
  raw.data_path = {"x"};
  EXPECT_THROW(build_datasets(raw, options), ConfigError);
}

}  // namespace
}  // namespace megatron::data
