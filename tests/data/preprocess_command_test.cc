// The preprocess command as a user calls it: forms of options, exit statuses, messages.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/check.h"
#include "compressed.h"
#include "data/indexed_dataset.h"
#include "support/shell_command.h"
#include "temporary_folder.h"

#ifdef MEGATRON_BINARY

namespace megatron::data {
namespace {

using testing::TemporaryFolder;
using testing::write_file;

using Outcome = megatron::testing::CommandResult;

Outcome run(const std::string& arguments) {
  return megatron::testing::run_command(str_cat("'", MEGATRON_BINARY, "' preprocess ", arguments, " 2>&1"));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(PreprocessCommand, WritesTheNamedFiles) {
  const TemporaryFolder folder;
  write_file(folder / "a b.jsonl", "{\"text\":\"\"}\n{\"text\":\"ab\"}\n");
  const Outcome outcome =
      run(str_cat("--input '", folder / "a b.jsonl", "' --json-keys text --output-prefix '", folder / "o p",
                  "' --tokenizer-type=ByteLevel --append-eod --workers 1_0 --workers 2"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "2 documents, 1 empty, 3 tokens, with end-of-document ids")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "MB/s")) << outcome.output;
  EXPECT_EQ(IndexedDataset(folder / "o p_text_document").get(0), (std::vector<std::int64_t>{97, 98, 256}));
}

TEST(PreprocessCommand, NamesTheBadLine) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl", "{\"text\":\"x\"}\n{\"text\":\"y\"}\n{\"content\":\"x\"}\n");
  const Outcome outcome =
      run(str_cat("--input ", folder / "a.jsonl", " --output-prefix ", folder / "o", " --tokenizer-type ByteLevel"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.output, "a.jsonl:3: missing key \"text\"; keys seen: \"content\"")) << outcome.output;
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(PreprocessCommand, NamesAllMistakesAtOnce) {
  const Outcome outcome =
      run("--inptu x --workers 0 --split-sentences --tokenizer-type MultimodalTokenizer --append-eod=3");
  EXPECT_EQ(outcome.status, 2);
  for (const char* part :
       {"--inptu: unknown option; nearest is --input", "--workers 0: must be at least 1",
        "--split-sentences: not built in this version", "--input: is required", "--output-prefix: is required",
        "MultimodalTokenizer: not built in this version", "--append-eod: takes no value"})
    EXPECT_TRUE(contains(outcome.output, part)) << part << "\n" << outcome.output;
}

TEST(PreprocessCommand, RefusesAnEndOfDocumentThatIsNotThere) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "1 2\n");
  const Outcome outcome =
      run(str_cat("--input ", folder / "a.txt", " --output-prefix ", folder / "o",
                  " --tokenizer-type NullTokenizer --vocab-size 9 --null-tokenizer-eod-id -1 --append-eod"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(contains(outcome.output, "append end-of-document asked, tokenizer NullTokenizer has no such token"));
}

TEST(PreprocessCommand, RefusesOptionsThatTheTokenizerDoesNotHave) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "1 2\n");
  const Outcome outcome = run(str_cat("--input ", folder / "a.txt", " --output-prefix ", folder / "o",
                                      " --tokenizer-type ByteLevel --vocab-size 9 --null-tokenizer-eod-id 3"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(contains(outcome.output, "--vocab-size has no effect: --tokenizer-type ByteLevel does not read it"));
  EXPECT_TRUE(contains(outcome.output, "--null-tokenizer-eod-id: needs --tokenizer-type NullTokenizer"));
}

/// Peak resident bytes of a run in a process of its own.
std::int64_t peak_bytes(const std::string& input, const std::string& prefix) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stdout) != nullptr)
      ::execl(MEGATRON_BINARY, MEGATRON_BINARY, "preprocess", "--input", input.c_str(), "--output-prefix",
              prefix.c_str(), "--tokenizer-type", "ByteLevel", "--workers", "1", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  struct rusage usage {};
  ::wait4(child, &status, 0, &usage);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return usage.ru_maxrss * 1024;
}

// 200,000 documents of one token: what is kept in memory must not grow with them.
TEST(PreprocessCommand, MemoryDoesNotGrowWithDocuments) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "a\n";
  write_file(folder / "small.txt", text.substr(0, 1000));
  write_file(folder / "large.txt", text);
  const std::int64_t small = peak_bytes(folder / "small.txt", folder / "o");
  EXPECT_LT(peak_bytes(folder / "large.txt", folder / "o") - small, 64LL * 200'000);
}

TEST(PreprocessCommand, StandardInputPlainOrCompressed) {
  const TemporaryFolder folder;
  std::string json = "\xef\xbb\xbf";
  for (int i = 0; i < 3000; ++i) json += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
  write_file(folder / "a.jsonl", json);
  write_file(folder / "a.gz", testing::gzip(json));
  write_file(folder / "a.zst", testing::zstd(json));
  std::string expected;
  for (const char* name : {"a.jsonl", "a.gz", "a.zst"}) {
    const Outcome outcome =
        run(str_cat("--input - --output-prefix ", folder / "o", " --tokenizer-type ByteLevel < ", folder / name));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "3000 documents")) << outcome.output;
    const std::string bin = testing::read_file(folder / "o_text_document.bin");
    if (expected.empty()) expected = bin;
    EXPECT_EQ(bin, expected);
  }
}

TEST(PreprocessCommand, LenientReportsTheFirstTwentyBadLines) {
  const TemporaryFolder folder;
  std::string json = "{\"text\": \"good\"}\n";
  for (int i = 0; i < 30; ++i) json += i % 3 == 0 ? "{}\n" : "{\"text\": 1}\n";
  write_file(folder / "a.jsonl", json);
  const Outcome outcome = run(str_cat("--input ", folder / "a.jsonl", " --output-prefix ", folder / "o",
                                      " --tokenizer-type ByteLevel --lenient"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "skipped " + (folder / "a.jsonl") + ":2: missing key")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "a.jsonl:21: ")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "a.jsonl:22: ")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "30 bad lines skipped: 10 missing key, 20 value is not a string"))
      << outcome.output;
}

// Killed at moments that nothing chose, the same command ends with the same bytes.
TEST(PreprocessCommand, SurvivesKills) {
  const TemporaryFolder folder;
  std::string json;
  for (int i = 0; i < 200'000; ++i) json += "{\"text\": \"some words of line number " + std::to_string(i) + "\"}\n";
  write_file(folder / "a.jsonl", json);
  const std::string options = str_cat("--input ", folder / "a.jsonl",
                                      " --tokenizer-type ByteLevel --append-eod --workers 1 --resume-interval 1");
  ASSERT_EQ(run(str_cat(options, " --output-prefix ", folder / "whole")).status, 0);
  const std::string again = str_cat(options, " --output-prefix ", folder / "o");
  int killed = 0;
  for (const char* seconds : {"0.05", "0.13", "0.08", "0.2", "0.11"}) {
    const Outcome outcome = megatron::testing::run_command(
        str_cat("timeout -s KILL ", seconds, " '", MEGATRON_BINARY, "' preprocess ", again));
    if (outcome.status == 0) break;
    ++killed;
    // Two files cannot get their names at one time, and a process may die behind its last rename: what has a final name
    // is whole.
    for (const char* suffix : {".bin", ".idx"})
      if (::access(((folder / "o_text_document") + suffix).c_str(), F_OK) == 0) {
        EXPECT_EQ(testing::read_file((folder / "o_text_document") + suffix),
                  testing::read_file((folder / "whole_text_document") + suffix));
      }
  }
  EXPECT_GT(killed, 0);
  const Outcome outcome = run(again);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* suffix : {".bin", ".idx", ".tokenizer.json"})
    EXPECT_EQ(testing::read_file((folder / "o_text_document") + suffix),
              testing::read_file((folder / "whole_text_document") + suffix));
}

TEST(PreprocessCommand, Help) {
  const Outcome outcome = run("--help");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(contains(outcome.output, "--json-keys KEY [KEY ...]"));
}

}  // namespace
}  // namespace megatron::data

#endif
