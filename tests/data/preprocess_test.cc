#include "data/preprocess.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "compressed.h"
#include "data/indexed_dataset.h"
#include "data/tokenizer_stamp.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;
using Ints = std::vector<std::int64_t>;

PreprocessConfig config_for(const std::vector<std::string>& inputs, const std::string& prefix) {
  PreprocessConfig config;
  config.inputs = inputs;
  config.output_prefix = prefix;
  return config;
}

const tokenizer::Tokenizer& bytes() {
  static const auto tokenizer = tokenizer::create_tokenizer("ByteLevel");
  return *tokenizer;
}

/// Texts of all documents; a document without sequence is "(empty)".
std::vector<std::string> documents_of(const std::string& prefix) {
  const IndexedDataset dataset(prefix);
  std::vector<std::string> texts;
  for (std::int64_t d = 0; d < dataset.num_documents(); ++d) {
    if (dataset.document_start(d) == dataset.document_start(d + 1)) texts.emplace_back("(empty)");
    for (std::int64_t i = dataset.document_start(d); i < dataset.document_start(d + 1); ++i)
      texts.push_back(bytes().decode(dataset.get(i), "$"));
  }
  return texts;
}

std::string error_of(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer = bytes()) {
  try {
    preprocess(config, tokenizer);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Preprocess, TextFileHasADocumentPerLine) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "\xef\xbb\xbfone\r\n\ntwo  \xff\nthree");
  PreprocessConfig config = config_for({folder / "a.txt"}, folder / "out");
  config.append_eod = true;
  const PreprocessProgress result = preprocess(config, bytes());
  EXPECT_EQ(documents_of(folder / "out_text_document"),
            (std::vector<std::string>{"one$", "(empty)", "two  \xff$", "three$"}));
  EXPECT_EQ(result.documents, 4);
  EXPECT_EQ(result.empty_documents, 1);
  EXPECT_EQ(result.tokens, 17);
  EXPECT_EQ(IndexedDataset(folder / "out_text_document").type(), TokenType::uint16);
  EXPECT_EQ(folder.num_files(), 4U);  // with the tokenizer's hash
}

TEST(Preprocess, JsonLinesSkipBlankLinesAndByteOrderMark) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl",
             "\xef\xbb\xbf{\"text\":\"x\"}\n\n  \r\n{\"text\":\"a  b\\n\\tc "
             "\"}\r\n{\"text\":\"\"}\n{\"text\":\"<|endoftext|>\"}");
  preprocess(config_for({folder / "a.jsonl"}, folder / "out"), bytes());
  EXPECT_EQ(documents_of(folder / "out_text_document"),
            (std::vector<std::string>{"x", "a  b\n\tc ", "(empty)", "<|endoftext|>"}));
}

// The first document may be empty: it only moves the boundary.
TEST(Preprocess, EmptyFirstDocument) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl", "{\"text\":\"\"}\n{\"text\":\"ab\"}\n");
  PreprocessConfig config = config_for({folder / "a.jsonl"}, folder / "out");
  config.append_eod = true;
  EXPECT_EQ(preprocess(config, bytes()).empty_documents, 1);
  const IndexedDataset dataset(folder / "out_text_document");
  ASSERT_EQ(dataset.num_sequences(), 1);
  EXPECT_EQ(dataset.get(0), (Ints{97, 98, 256}));
  EXPECT_EQ(dataset.document_start(1), 0);
}

TEST(Preprocess, OneCompletePairPerKey) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl", "{\"title\":\"t1\",\"text\":\"x\"}\n{\"text\":\"y\",\"title\":\"\"}\n");
  PreprocessConfig config = config_for({folder / "a.jsonl"}, folder / "out");
  config.json_keys = {"text", "title"};
  EXPECT_EQ(preprocess(config, bytes()).documents, 2);
  EXPECT_EQ(documents_of(folder / "out_text_document"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(documents_of(folder / "out_title_document"), (std::vector<std::string>{"t1", "(empty)"}));
}

TEST(Preprocess, OutputDoesNotDependOnWorkersOrBlocks) {
  const TemporaryFolder folder;
  std::string text, json;
  for (int i = 0; i < 3000; ++i) {
    const std::string words(static_cast<std::size_t>(i % 57), static_cast<char>('a' + i % 26));
    text += words + "\n";
    json += "{\"text\": \"" + words + "\"}\n";
  }
  write_file(folder / "a.txt", text);
  write_file(folder / "b.jsonl", json);
  std::string bin, idx;
  for (const int workers : {1, 2, 5}) {
    for (const std::size_t block : {1UL << 20, 1000UL, 17UL}) {
      PreprocessConfig config = config_for({folder / "a.txt", folder / "b.jsonl"}, folder / "out");
      config.workers = workers;
      config.block_bytes = block;
      config.append_eod = true;
      EXPECT_EQ(preprocess(config, bytes()).documents, 6000);
      const std::string new_bin = read_file(folder / "out_text_document.bin");
      const std::string new_idx = read_file(folder / "out_text_document.idx");
      if (bin.empty()) bin = new_bin, idx = new_idx;
      EXPECT_EQ(new_bin, bin);
      EXPECT_EQ(new_idx, idx);
    }
  }
}

TEST(Preprocess, ABadLineIsNamedAndLeavesNothing) {
  const TemporaryFolder folder;
  std::string lines = "{\"text\":\"a\"}\n\n";
  for (int i = 0; i < 500; ++i) lines += "{\"text\":\"bb\"}\n";
  write_file(folder / "good.jsonl", "{\"text\":\"g\"}\n{\"text\":\"g\"}\n");
  write_file(folder / "bad.jsonl", lines + "{\"content\":\"x\"}\n{\"text\":\"cut");
  for (const int workers : {1, 4}) {
    PreprocessConfig config = config_for({folder / "good.jsonl", folder / "bad.jsonl"}, folder / "out");
    config.workers = workers;
    config.block_bytes = 100;
    EXPECT_EQ(error_of(config), (folder / "bad.jsonl") + ":503: missing key \"text\"; keys seen: \"content\"");
    EXPECT_EQ(folder.num_files(), 2U);
  }
}

TEST(Preprocess, TruncatedLastLine) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl", "{\"text\":\"a\"}\n\n   \n{\"text\":\"b\"}\n{\"text\":\"cut");
  EXPECT_NE(error_of(config_for({folder / "a.jsonl"}, folder / "out")).find("a.jsonl:5: invalid JSON"),
            std::string::npos);
}

TEST(Preprocess, RefusedConfigurations) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "1 2\n3 x\n");
  write_file(folder / "empty.jsonl", "\n\n");
  const auto no_eod = tokenizer::create_tokenizer("NullTokenizer", {100, -1, {}});
  PreprocessConfig config = config_for({folder / "a.txt"}, folder / "out");
  config.append_eod = true;
  EXPECT_NE(error_of(config, *no_eod).find("append end-of-document asked, tokenizer NullTokenizer has no such token"),
            std::string::npos);
  config.append_eod = false;
  EXPECT_NE(error_of(config, *no_eod).find("a.txt:2: 'x' is not a token id"), std::string::npos);
  config.json_keys = {"text", "title"};
  EXPECT_NE(error_of(config).find("a text file has no keys"), std::string::npos);
  config.json_keys = {"text", "text"};
  EXPECT_NE(error_of(config).find("given twice"), std::string::npos);
  EXPECT_NE(error_of(config_for({folder / "missing.txt"}, folder / "out")).find("missing.txt"), std::string::npos);
  EXPECT_NE(error_of(config_for({folder / "empty.jsonl"}, folder / "out")).find("no documents"), std::string::npos);
  EXPECT_EQ(folder.num_files(), 2U);
}

TEST(Preprocess, LenientRunsSkipAndCountBadLines) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl",
             "{\"text\":\"a\",\"title\":\"t\"}\n\n   \n{\"text\":\"b\",\"title\":5}\n{\"text\":\"c\"}\n[1]\n"
             "{\"text\":\"\\ud800\",\"title\":\"\"}\n{\"text\":\"d\",\"title\":\"\"}\n{\"text\":\"cut");
  PreprocessConfig config = config_for({folder / "a.jsonl"}, folder / "out");
  config.json_keys = {"text", "title"};
  config.lenient = true;
  const PreprocessProgress result = preprocess(config, bytes());
  EXPECT_EQ(documents_of(folder / "out_text_document"), (std::vector<std::string>{"a", "d"}));
  EXPECT_EQ(documents_of(folder / "out_title_document"), (std::vector<std::string>{"t", "(empty)"}));
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.skipped,
            (std::map<std::string, std::int64_t>{
                {"invalid JSON", 2}, {"missing key", 1}, {"not a JSON object", 1}, {"value is not a string", 1}}));
  ASSERT_EQ(result.skipped_lines.size(), 5U);
  EXPECT_EQ(result.skipped_lines[0], (folder / "a.jsonl") + ":4: the value of \"title\" is a number, not a string");
  EXPECT_EQ(result.skipped_lines[4].substr(0, (folder / "a.jsonl").size() + 16),
            (folder / "a.jsonl") + ":9: invalid JSON");
}

// What the tokenizer refuses is a bad line as well, and a key that had taken the line gives it back.
TEST(Preprocess, LenientRunsSkipWhatTheTokenizerRefuses) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"text\":\"1\",\"title\":\"2\"}\n{\"text\":\"3 4\",\"title\":\"x\"}\n";
  write_file(folder / "a.jsonl", lines);
  const auto null = tokenizer::create_tokenizer("NullTokenizer", {10, -1, {}});
  PreprocessConfig config = config_for({folder / "a.jsonl"}, folder / "out");
  config.json_keys = {"text", "title"};
  config.lenient = true;
  const PreprocessProgress result = preprocess(config, *null);
  EXPECT_EQ(result.documents, 100);
  EXPECT_EQ(result.skipped, (std::map<std::string, std::int64_t>{{"refused by the tokenizer", 100}}));
  EXPECT_EQ(result.skipped_lines.size(), 20U);
  EXPECT_EQ(result.skipped_lines[19].substr((folder / "a.jsonl").size()).substr(0, 4), ":40:");
  EXPECT_EQ(IndexedDataset(folder / "out_text_document").num_tokens(), 100);
  EXPECT_EQ(IndexedDataset(folder / "out_title_document").num_sequences(), 100);
}

/// An id that the file's type cannot hold is found while the line's bytes are being written.
TEST(Preprocess, IdsThatDoNotFitLeaveNothingOfTheirLine) {
  const TemporaryFolder folder;
  write_file(folder / "bad.txt", "1 2 3\n4 3000000000 5\n6 7\n");
  write_file(folder / "good.txt", "1 2 3\n6 7\n");
  const auto null = tokenizer::create_tokenizer("NullTokenizer", {4'000'000'000, -1, {}});
  for (const char* name : {"bad", "good"}) {
    PreprocessConfig config = config_for({(folder / name) + ".txt"}, folder / name);
    config.lenient = true;
    EXPECT_EQ(preprocess(config, *null).documents, 2);
  }
  EXPECT_EQ(read_file(folder / "bad_text_document.bin"), read_file(folder / "good_text_document.bin"));
  EXPECT_EQ(read_file(folder / "bad_text_document.idx"), read_file(folder / "good_text_document.idx"));
}

TEST(Preprocess, LenientRunsNeedAtLeastOneDocument) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl", "{}\n");
  PreprocessConfig config = config_for({folder / "a.jsonl"}, folder / "out");
  config.lenient = true;
  EXPECT_NE(error_of(config).find("no documents; " + (folder / "a.jsonl") + ":1: missing key"), std::string::npos);
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(Preprocess, CompressedInputsGiveTheSameBytes) {
  const TemporaryFolder folder;
  std::string json, text;
  for (int i = 0; i < 2000; ++i) {
    json += "{\"n\": 123456789012345678901234567890, \"text\": \"line " + std::to_string(i) + "\"}\n";
    text += "line " + std::to_string(i) + "\n";
  }
  write_file(folder / "a.jsonl", json);
  write_file(folder / "a.jsonl.gz", testing::gzip(json));
  write_file(folder / "a.jsonl.zst", testing::zstd(json));
  write_file(folder / "a.txt", text);
  write_file(folder / "a.txt.gz", testing::gzip(text));
  write_file(folder / "a.txt.zst", testing::zstd(text));
  std::string expected;
  for (const char* name : {"a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.txt", "a.txt.gz", "a.txt.zst"}) {
    PreprocessConfig config = config_for({folder / name}, folder / "out");
    config.block_bytes = 777;
    config.workers = 3;
    EXPECT_EQ(preprocess(config, bytes()).documents, 2000) << name;
    const std::string bin = read_file(folder / "out_text_document.bin");
    if (expected.empty()) expected = bin;
    EXPECT_EQ(bin, expected) << name;
  }
}

// What was read before the damage is judged first, whatever the number of workers.
TEST(Preprocess, DamagedInputIsToldAfterTheLinesBeforeIt) {
  const TemporaryFolder folder;
  std::string json;
  for (int i = 0; i < 20'000; ++i) json += "{\"text\": \"line " + std::to_string(i * 7919 % 10007) + "\"}\n";
  const std::string packed = testing::gzip(json), worse = testing::gzip("{}\n" + json);
  write_file(folder / "cut.jsonl.gz", packed.substr(0, packed.size() - 20));
  write_file(folder / "bad.jsonl.gz", worse.substr(0, worse.size() - 20));
  for (const int workers : {1, 4}) {
    PreprocessConfig config = config_for({folder / "cut.jsonl.gz"}, folder / "out");
    config.workers = workers;
    config.block_bytes = 1000;
    EXPECT_NE(error_of(config).find("gzip data end at offset"), std::string::npos);
    config.inputs = {folder / "bad.jsonl.gz"};
    EXPECT_NE(error_of(config).find("bad.jsonl.gz:1: missing key"), std::string::npos);
    EXPECT_EQ(folder.num_files(), 2U);
  }
}

TEST(Preprocess, TheTokenizerIsRemembered) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "1 2\n");
  preprocess(config_for({folder / "a.txt"}, folder / "out"), bytes());
  const std::string prefix = folder / "out_text_document";
  EXPECT_NO_THROW(check_stamp(prefix, bytes()));
  const auto other = tokenizer::create_tokenizer("NullTokenizer", {300, {}, {}});
  try {
    check_stamp(prefix, *other);
    ADD_FAILURE() << "another tokenizer was taken";
  } catch (const ConfigError& error) {
    for (const char* part : {"--tokenizer-type NullTokenizer", "was made by another tokenizer: ByteLevel with 257 ids",
                             "NullTokenizer with 300 ids", "out_text_document.tokenizer.json"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  preprocess(config_for({folder / "a.txt"}, folder / "out"), *other);
  EXPECT_NO_THROW(check_stamp(prefix, *tokenizer::create_tokenizer("NullTokenizer", {400, 299, {}})));
  EXPECT_THROW(check_stamp(prefix, *tokenizer::create_tokenizer("NullTokenizer", {400, {}, {}})), ConfigError);
  write_file(prefix + ".tokenizer.json", "{");
  EXPECT_THROW(check_stamp(prefix, *other), IoError);
  EXPECT_NO_THROW(check_stamp(folder / "nothing", *other));
}

TEST(Preprocess, LargeVocabulariesUseFourBytes) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "66000 1\n");
  const auto null = tokenizer::create_tokenizer("NullTokenizer", {66001, {}, {}});
  preprocess(config_for({folder / "a.txt"}, folder / "out"), *null);
  const IndexedDataset dataset(folder / "out_text_document");
  EXPECT_EQ(dataset.type(), TokenType::int32);
  EXPECT_EQ(dataset.get(0), (Ints{66000, 1}));
}

}  // namespace
}  // namespace megatron::data
