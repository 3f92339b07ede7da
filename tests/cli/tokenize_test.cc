// megatron tokenize, bench data and bench index as a user runs them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "support/reference_data.h"
#include "support/shell_command.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

testing::CommandResult run(const std::string& arguments) {
  return testing::run_command(str_cat("'", MEGATRON_BINARY, "' ", arguments, " 2>&1"));
}

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

constexpr const char* kBytes = " --tokenizer-type ByteLevel ";

TEST(Tokenize, PrintsAnArrayPerDocumentOfEachFormat) {
  const testing::TemporaryFolder folder;
  write(folder / "a.jsonl", "{\"text\":\"ab\"}\n\n{\"text\":\"\"}\n{\"text\":\"\\u00e9\"}");
  write(folder / "a.txt", "ab\r\n\n\xff");
  write(folder / "a.hex", "6162\n\nFf\n");
  EXPECT_EQ(run(str_cat("tokenize --input ", folder / "a.jsonl", kBytes)).output, "[97,98]\n[]\n[195,169]\n");
  EXPECT_EQ(run(str_cat("tokenize --input-format lines --input ", folder / "a.txt", kBytes)).output,
            "[97,98]\n[]\n[255]\n");
  EXPECT_EQ(run(str_cat("tokenize --input-format hex-lines --input ", folder / "a.hex", kBytes)).output,
            "[97,98]\n[]\n[255]\n");
  write(folder / "b.jsonl", "{\"content\":\"a\",\"text\":\"b\"}\n");
  EXPECT_EQ(run(str_cat("tokenize --json-key content --input ", folder / "b.jsonl", kBytes)).output, "[97]\n");
}

TEST(Tokenize, DecodesWhatItPrinted) {
  const testing::TemporaryFolder folder;
  write(folder / "ids", "[97,10,195,169]\n[]\n[256,98]\n");
  const std::string input = str_cat("tokenize --decode --input ", folder / "ids", kBytes);
  EXPECT_EQ(run(input).output, "{\"text\":\"a\\n\u00e9\"}\n{\"text\":\"\"}\n{\"text\":\"<eod>b\"}\n");
  EXPECT_EQ(run(input + "--input-format hex-lines").output, "610ac3a9\n\n3c656f643e62\n");
  write(folder / "half", "[195]\n");
  const auto half = run(str_cat("tokenize --decode --input ", folder / "half", kBytes));
  EXPECT_EQ(half.status, 1);
  EXPECT_NE(half.output.find("half:1: the text is not UTF-8"), std::string::npos) << half.output;
  std::ofstream(folder / "two") << "[97,10,98]\n";
  const auto torn = run(str_cat("tokenize --decode --input-format lines --input ", folder / "two", kBytes, " 2>&1"));
  EXPECT_EQ(torn.status, 1);
  EXPECT_NE(torn.output.find("holds a line feed, so it is no line"), std::string::npos) << torn.output;
  EXPECT_EQ(run(str_cat("tokenize --decode --input-format lines --input ", folder / "half", kBytes)).output, "\xc3\n");
}

TEST(Tokenize, ExplainsAndAddsEnds) {
  const testing::TemporaryFolder folder;
  write(folder / "a", "a\u00e9\n");
  const std::string input = str_cat("tokenize --input-format lines --input ", folder / "a", kBytes);
  EXPECT_EQ(run(input + "--explain").output, "[[97,\"a\"],[195,\"<C3>\"],[169,\"<A9>\"]]\n");
  EXPECT_EQ(run(input + "--text-ends eos").output, "[97,195,169,256]\n");
  const auto bos = run(input + "--text-ends bos");
  EXPECT_EQ(bos.status, 2);
  EXPECT_NE(bos.output.find("the tokenizer ByteLevel has no token for the beginning of a text"), std::string::npos)
      << bos.output;
}

TEST(Tokenize, NamesMistakesAndBadLines) {
  const testing::TemporaryFolder folder;
  write(folder / "a.hex", "61\n6\n");
  const auto odd = run(str_cat("tokenize --input-format hex-lines --input ", folder / "a.hex", kBytes));
  EXPECT_EQ(odd.status, 1);
  EXPECT_NE(odd.output.find("a.hex:2: an odd number of hexadecimal digits"), std::string::npos) << odd.output;
  write(folder / "ids", "[1]\n[1,\"x\"]\n");
  const auto word = run(str_cat("tokenize --decode --input ", folder / "ids", kBytes));
  EXPECT_EQ(word.status, 1);
  EXPECT_NE(word.output.find("ids:2: \"x\" is not an id"), std::string::npos) << word.output;
  const auto wrong = run(str_cat("tokenize --input-format xml --text-ends all --decode --explain", kBytes));
  EXPECT_EQ(wrong.status, 2);
  for (const char* part : {"--input: is required", "--input-format xml: must be jsonl, lines or hex-lines",
                           "--text-ends all: must be none", "--explain: has no meaning with --decode"})
    EXPECT_NE(wrong.output.find(part), std::string::npos) << wrong.output;
}

TEST(Tokenize, EqualsTheReferenceIds) {
  const auto assets = testing::reference_dir() / "assets";
  MEGATRON_REQUIRE_REFERENCE(assets / "golden_tokens" / "gpt2.jsonl");
  const testing::TemporaryFolder folder;
  for (const char* mode : {"ordinary", "special"}) {
    std::string hex, ids;
    std::ifstream golden(assets / "golden_tokens" / "gpt2.jsonl");
    for (std::string line; std::getline(golden, line);) {
      if (line.find(str_cat("\"mode\":\"", mode, "\"")) == std::string::npos) continue;
      const auto json = nlohmann::json::parse("{" + line.substr(line.find("\"utf8_hex\"")));
      hex += json["utf8_hex"].get<std::string>() + "\n";
      ids += json["ids"].dump() + "\n";
    }
    write(folder / "hex", hex);
    write(folder / "ids", ids);
    const std::string options = str_cat(" --input-format hex-lines --tokenizer-type GPT2BPETokenizer --vocab-file '",
                                        (assets / "tokenizers" / "gpt2-encoder.json").string(), "' --merge-file '",
                                        (assets / "tokenizers" / "gpt2-vocab.bpe").string(), "' ");
    EXPECT_EQ(run(str_cat("tokenize --input ", folder / "hex", options,
                          std::string(mode) == "special" ? "--parse-special" : ""))
                  .output,
              ids);
    EXPECT_EQ(run(str_cat("tokenize --decode --input ", folder / "ids", options)).output, hex);
  }
}

TEST(BenchData, CountsTokensWhateverTheThreads) {
  const testing::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += str_cat("line ", i, " of a text\n");
  write(folder / "a.txt", text);
  for (const char* threads : {"1", "3"}) {
    const auto result =
        run(str_cat("bench data --megabytes 1 --json --threads ", threads, " --input ", folder / "a.txt", kBytes));
    ASSERT_EQ(result.status, 0) << result.output;
    const auto json = nlohmann::json::parse(result.output);
    const auto size = static_cast<std::int64_t>(text.size());
    EXPECT_EQ(json["tokens"].get<std::int64_t>(), 1'000'000 / size * size);
    EXPECT_GT(json["megabytes_per_second"].get<double>(), 0);
    EXPECT_GT(json["seconds"].get<double>(), 0);
  }
}

TEST(BenchIndex, HoldsTheBoundOfMemory) {
  const auto result = run("bench index --tokens 3000000 --document-tokens 100 --seq-length 64 --epochs 3 --json");
  ASSERT_EQ(result.status, 0) << result.output;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["epochs"].get<std::int64_t>(), 3);
  EXPECT_EQ(json["samples"].get<std::int64_t>(), (3 * 3'000'000 - 1) / 64);
  // The ends of the last sample are two more entries.
  EXPECT_LE(json["index_bytes"].get<std::int64_t>(), json["limit_bytes"].get<std::int64_t>() + 8);
  EXPECT_EQ(run("bench index --tokens 64 --seq-length 64").status, 2);
}

}  // namespace
}  // namespace megatron
