#include "data/corpus.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::TemporaryFolder;
using testing::write_file;
using Lines = std::vector<std::string>;

Lines lines_of(const std::vector<std::string>& paths, std::size_t block_bytes) {
  BlockReader reader(paths, block_bytes);
  Lines lines;
  for (LineBlock block; reader.next(block);)
    for_each_line(block.text,
                  [&](std::string_view line) { lines.push_back(std::to_string(block.file) + std::string(line)); });
  return lines;
}

TEST(BlockReader, LinesDoNotDependOnTheBlockSize) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "\xef\xbb\xbfone\ntwo\r\n\n a long line \xef\xbb\xbf\nno end");
  write_file(folder / "b.txt", "");
  write_file(folder / "c.jsonl", "{}\n");
  const Lines expected = {"0one", "0two", "0", "0 a long line \xef\xbb\xbf", "0no end", "2{}"};
  for (std::size_t size = 1; size < 50; ++size)
    EXPECT_EQ(lines_of({folder / "a.txt", folder / "b.txt", folder / "c.jsonl"}, size), expected) << size;
  EXPECT_EQ(corpus_kind("x.txt"), CorpusKind::text);
  EXPECT_EQ(corpus_kind("x.jsonl"), CorpusKind::json_lines);
  EXPECT_THROW(BlockReader({folder / "a.txt", folder / "missing.txt"}), IoError);
}

TEST(BlockReader, AMarkIsOneOnlyAtTheStart) {
  const TemporaryFolder folder;
  const std::string mark = "\xef\xbb\xbf";
  write_file(folder / "a.txt", "a\n" + mark + "b\n");
  for (const std::size_t block : {1, 2, 3, 100})
    EXPECT_EQ(lines_of({folder / "a.txt"}, block), (Lines{"0a", "0" + mark + "b"})) << block;
}

TEST(BlockReader, ContinuesAtTheEndOfABlock) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "\xef\xbb\xbfone\ntwo\r\n\nthree\nno end");
  write_file(folder / "b.txt", "\xef\xbb\xbfx\ny");
  const std::vector<std::string> paths = {folder / "a.txt", folder / "b.txt"};
  for (std::size_t size = 1; size < 30; ++size) {
    std::vector<LineBlock> blocks;
    BlockReader reader(paths, size);
    for (LineBlock block; reader.next(block);) blocks.push_back(block);
    EXPECT_EQ(reader.input_consumed(), reader.input_size());
    for (std::size_t at = 0; at + 1 < blocks.size(); ++at) {
      BlockReader later(paths, size);
      later.seek(blocks[at].file, blocks[at].end_offset);
      std::string rest, expected;
      for (LineBlock block; later.next(block);) rest += std::to_string(block.file) + block.text;
      for (std::size_t i = at + 1; i < blocks.size(); ++i) expected += std::to_string(blocks[i].file) + blocks[i].text;
      // Blocks may be cut elsewhere; the text is the same.
      const auto plain = [](const std::string& text) {
        std::string out;
        for (const char c : text) out += c == '0' || c == '1' ? std::string() : std::string(1, c);
        return out;
      };
      EXPECT_EQ(plain(rest), plain(expected)) << size << " " << at;
    }
  }
}

std::string reason(std::string_view line, const std::vector<std::string>& keys = {"text"}) {
  try {
    json_strings(line, keys);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonStrings, TakesTopLevelStrings) {
  EXPECT_EQ(json_strings(R"({"text": "a\nb", "n": 3})", {"text"}), Lines{"a\nb"});
  EXPECT_EQ(json_strings(R"({"x": {"text": "inner"}, "text": "outer", "y": [{"text": 1}]})", {"text"}), Lines{"outer"});
  EXPECT_EQ(json_strings(R"({"b": "2", "a": "1"})", {"a", "b"}), (Lines{"1", "2"}));
  EXPECT_EQ(json_strings(R"({"text": "first", "text": "last"})", {"text"}), Lines{"last"});
  EXPECT_EQ(json_strings("  {\"text\": \"\\u00e9\\ud83d\\ude00\\u0000\"} ", {"text"}),
            Lines{std::string("\xc3\xa9\xf0\x9f\x98\x80\0", 7)});
  EXPECT_EQ(json_strings(R"({"text": ""})", {"text"}), Lines{""});
}

TEST(JsonStrings, TakesAnythingThatIsJson) {
  EXPECT_EQ(json_strings(R"({"n": 123456789012345678901234567890, "f": -1.5e-7, "text": "a"})", {"text"}), Lines{"a"});
  EXPECT_EQ(json_strings(R"({"text": "a", "n": [true, null, {"text": 1}]})", {"text"}), Lines{"a"});
  EXPECT_EQ(json_strings(R"({"te\u0078t": "a"})", {"text"}), Lines{"a"});
  EXPECT_EQ(json_strings("\xef\xbb\xbf{\"text\": \"a\"}", {"text"}), Lines{"a"});
  EXPECT_EQ(reason(R"({"text": 1, "text": "a"})"), R"(the value of "text" is a number, not a string)");
  EXPECT_EQ(reason(R"({"text": "a", "n": NaN})").substr(0, 20), "invalid JSON at byte");
  for (const char* number : {"01", "1-2", "12-1012345678901234567890", "1e2e3", "1e5e999", "-", "1.5.2", "1e999-1e999"})
    EXPECT_EQ(reason(std::string(R"({"text": "a", "n": )") + number + "}").substr(0, 20), "invalid JSON at byte")
        << number;
  for (const char* number : {"-12e400", "1e999", "-0", "[-1, 25,1e5 ,1E+999]", "1e999 "})
    EXPECT_EQ(reason(std::string(R"({"text": "a", "n": )") + number + "}"), "") << number;
}

TEST(JsonStrings, NumbersOfAnySize) {
  for (const char* number :
       {"1e999", "-1e-999", "123456789012345678901234567890", "-0.5E+77777", "0", "-0", "10", "[1e999,{\"a\":2e999}]"})
    EXPECT_EQ(json_strings(str_cat("{\"text\": \"1e999 \\\"7\", \"n\": ", number, "}"), {"text"})[0], "1e999 \"7")
        << number;
  for (const char* number : {"1e999x", "01e999", "-", "1e", "+1e999", ".5e999", "1.e999"})
    EXPECT_NE(reason(str_cat("{\"text\": \"a\", \"n\": [1e999, ", number, "]}")).find("invalid JSON at byte "),
              std::string::npos)
        << number;
  EXPECT_EQ(reason("{\"text\": 1e999}"), "the value of \"text\" is a number, not a string");
}

TEST(JsonStrings, SaysWhatIsWrong) {
  EXPECT_EQ(reason(R"({"content": "x", "n": 1})"), R"(missing key "text"; keys seen: "content" "n")");
  EXPECT_EQ(reason("{}"), R"(missing key "text"; keys seen: none)");
  EXPECT_EQ(reason(R"({"text": 5})"), R"(the value of "text" is a number, not a string)");
  EXPECT_EQ(reason(R"({"text": null})"), R"(the value of "text" is null, not a string)");
  EXPECT_EQ(reason(R"({"text": ["a"]})"), R"(the value of "text" is an array, not a string)");
  EXPECT_EQ(reason(R"({"text": {"a": "b"}})"), R"(the value of "text" is an object, not a string)");
  EXPECT_EQ(reason(R"(["text"])"), "is an array, not a JSON object");
  EXPECT_EQ(reason(R"("text")"), "is a string, not a JSON object");
  for (const char* line : {"", "{\"text\":\"cut", "{\"text\":\"a\"} x", "{\"text\":\"\xff\"}", "{'text':'a'}",
                           "{\"text\":\"\\ud800\"}", "{\"text\":\"a\tb\"}"})
    EXPECT_EQ(reason(line).substr(0, 20), "invalid JSON at byte") << line;
  EXPECT_EQ(reason(std::string_view("{\"text\":\"a\"}\0x", 14)), "invalid JSON at byte 13: zero byte");
}

TEST(JsonStrings, DepthAndLengthAreNoTrouble) {
  EXPECT_EQ(json_strings("{\"text\":\"a\",\"x\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}",
                         {"text"}),
            Lines{"a"});
  const std::string text(5'000'000, 'a');
  EXPECT_EQ(json_strings("{\"text\":\"" + text + "\"}", {"text"}), Lines{text});
  EXPECT_LT(reason("{\"text\":\"" + text).size(), 300U) << "a reason is one short line";
}

}  // namespace
}  // namespace megatron::data
