// HuggingFace tokenizers against what the library `tokenizers` gave for them (make_huggingface_cases.py), and against
// the golden ids of published tokenizers.
#include "tokenizer/huggingface.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/check.h"
#include "huggingface_cases.h"
#include "support/reference_data.h"
#include "support/temporary_folder.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

std::string refusal(const json& file) {
  try {
    load(file);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Ids encode_special(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode_special(text, ids);
  return ids;
}

std::string eod_text(const Tokenizer& tokenizer) { return tokenizer.eod() ? tokenizer.piece(*tokenizer.eod()) : ""; }

std::uint32_t crc32(std::string_view bytes, std::uint32_t crc) {
  crc = ~crc;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320U & (0U - (crc & 1)));
  }
  return ~crc;
}

std::string line_of(const Tokenizer& tokenizer, const std::string& text) {
  std::string line;
  const Ids ids = encode_special(tokenizer, text);
  for (const std::int64_t id : ids) line += (line.empty() ? "" : ",") + std::to_string(id);
  return line + "|" + tokenizer.decode(ids, eod_text(tokenizer)) + "\n";
}

void expect_checksums(const Tokenizer& tokenizer, const std::vector<std::string>& texts, std::size_t block,
                      const std::string& expected, const std::string& what) {
  std::size_t wrong = 0, first_wrong = 0, index = 0;
  for (std::size_t begin = 0; begin < texts.size(); begin += block, ++index) {
    std::uint32_t crc = 0;
    for (std::size_t i = begin; i < std::min(begin + block, texts.size()); ++i)
      crc = crc32(line_of(tokenizer, texts[i]), crc);
    char text[9];
    std::snprintf(text, sizeof(text), "%08x", crc);
    if (expected.substr(index * 9, 8) != text && wrong++ == 0) first_wrong = begin;
  }
  EXPECT_EQ(index * 9, expected.size() + 1) << what;
  EXPECT_EQ(wrong, 0U) << what << ": the first block that differs begins at text " << first_wrong;
}

/// The line of a golden file without its text, which may hold halves of surrogate pairs.
json without_text(const std::string& line) {
  const std::size_t from = std::min(line.find("\"utf8_hex\""), line.find("\"raw_hex\""));
  return json::parse("{" + line.substr(from));
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<json> golden_lines(const std::string& name) {
  const std::string path = megatron::testing::reference_dir().string() + "/assets/golden_tokens/" + name;
  if (!std::filesystem::exists(path)) return {};
  std::vector<json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(without_text(line));
    lines.back()["new_characters"] =
        line.find("\"unicode_new\"") != std::string::npos || line.find("\"fuzz_cp\"") != std::string::npos;
  }
  return lines;
}

TEST(HuggingFace, FixedTextsEqualTheLibrary) {
  const json& texts = cases()["texts"];
  for (const json& c : cases()["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const auto tokenizer = load(file_of(c));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Ids ids = encode_special(*tokenizer, texts[i].get<std::string>());
      EXPECT_EQ(ids, c["ids"][i].get<Ids>()) << texts[i];
      EXPECT_EQ(tokenizer->decode(ids, eod_text(*tokenizer)), c["decoded"][i].get<std::string>()) << texts[i];
    }
    Ids with_ends;
    tokenizer->encode("the", {.parse_special = true, .ends = TextEnds::model}, with_ends);
    EXPECT_EQ(with_ends, c["with_ends"].get<Ids>());
  }
}

TEST(HuggingFace, RandomTextsEqualTheLibrary) {
  std::vector<std::string> texts(cases()["random"].get<std::size_t>());
  for (std::size_t i = 0; i < texts.size(); ++i) texts[i] = random_text(i);
  for (const json& c : cases()["cases"])
    expect_checksums(*load(file_of(c)), texts, cases()["block"], c["random"], c["name"]);
}

TEST(HuggingFace, GoldenTextsEqualTheLibrary) {
  std::vector<std::string> texts;
  // The tables of Unicode differ in age, so without the texts that hold characters of its last versions.
  for (const json& line : golden_lines("llama.jsonl"))
    if (!line["new_characters"].get<bool>()) texts.push_back(from_hex(line["utf8_hex"]));
  if (texts.empty()) GTEST_SKIP() << "no golden texts";
  ASSERT_EQ(texts.size(), cases()["golden"].get<std::size_t>());
  for (const json& c : cases()["cases"])
    expect_checksums(*load(file_of(c)), texts, cases()["golden_block"], c["golden"], c["name"]);
}

/// The text with spaces in place of "▁", which these files cannot tell apart.
std::string with_spaces(std::string text) {
  for (std::size_t at; (at = text.find("\xe2\x96\x81")) != std::string::npos;) text.replace(at, 3, " ");
  return text;
}

void expect_published(const std::string& golden, const std::string& file) {
  const std::string path = megatron::testing::reference_dir().string() + "/assets/tokenizers/" + file;
  const std::vector<json> lines = golden_lines(golden);
  if (lines.empty() || !std::filesystem::exists(path)) GTEST_SKIP() << "no " << golden << " or " << file;
  const auto tokenizer = make_huggingface_tokenizer({.tokenizer_model = path});
  for (const json& line : lines) {
    const std::string text = from_hex(line["utf8_hex"]);
    const Ids ids = encode_special(*tokenizer, text);
    EXPECT_EQ(ids, line["ids"].get<Ids>()) << line.dump();
    if (golden == "qwen3.jsonl") continue;  // NFC changes texts
    const std::string marks_as_spaces = golden == "mistral.jsonl" ? with_spaces(text) : text;
    EXPECT_EQ(tokenizer->decode(ids, eod_text(*tokenizer)), marks_as_spaces) << line.dump();
  }
}

TEST(HuggingFace, Llama3Golden) { expect_published("llama3.jsonl", "llama3-tokenizer.json"); }
TEST(HuggingFace, Qwen3Golden) { expect_published("qwen3.jsonl", "qwen3-tokenizer.json"); }
TEST(HuggingFace, MistralGolden) { expect_published("mistral.jsonl", "mistral7b-v0.1-tokenizer.json"); }

TEST(HuggingFace, CasesHoldEveryPartTwice) {
  std::map<std::string, int> seen;
  const std::function<void(const std::string&, const json&)> count = [&](const std::string& part, const json& node) {
    if (!node.is_object()) return;
    ++seen[part + "." + node["type"].get<std::string>()];
    for (const char* list : {"normalizers", "pretokenizers", "decoders", "processors"})
      if (node.contains(list))
        for (const json& child : node[list]) count(part, child);
  };
  for (const json& c : cases()["cases"])
    for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) count(part, c[part]);
  const std::map<std::string, std::string> known = {
      {"normalizer",
       "NFC NFD NFKC NFKD Lowercase Strip StripAccents Replace Prepend BertNormalizer Precompiled Nmt "
       "ByteLevel Sequence"},
      {"pre_tokenizer",
       "ByteLevel Whitespace WhitespaceSplit BertPreTokenizer Metaspace Split Punctuation Digits "
       "CharDelimiterSplit UnicodeScripts Sequence"},
      {"decoder", "ByteLevel WordPiece Metaspace ByteFallback Fuse Strip Replace BPEDecoder CTC Sequence"}};
  for (const auto& [part, names] : known) {
    std::istringstream list(names);
    for (std::string name; list >> name;) EXPECT_GE(seen[part + "." + name], 2) << part << " " << name;
  }
  for (const char* name : {"TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing", "Sequence"})
    EXPECT_GE(seen[std::string("post_processor.") + name], 1) << name;
}

TEST(HuggingFace, MarkersInDocumentsAreText) {
  for (const json& c : cases()["cases"]) {
    const auto tokenizer = load(file_of(c));
    std::set<std::int64_t> control;
    for (const json& token : c["added_tokens"])
      if (token["special"] && !token["content"].get<std::string>().starts_with("<unk") && token["content"] != "[UNK]")
        control.insert(token["id"].get<std::int64_t>());
    for (const std::string text : {"<s>", "a</s> b", "[CLS]", "[MASK] [SEP]", "x <|endoftext|>", "<mask>"})
      for (const std::int64_t id : tokenizer->encode(text))
        EXPECT_FALSE(control.contains(id)) << c["name"] << " " << text << " " << id;
  }
  const auto gpt2 = load(file_of(case_named("gpt2")));
  EXPECT_EQ(gpt2->decode(gpt2->encode("a<|endoftext|>b")), "a<|endoftext|>b");
  EXPECT_EQ(encode_special(*gpt2, "<|endoftext|>"), Ids{420});
  EXPECT_EQ(gpt2->eod(), 420);
}

/// A control token that merges lead to stays text; one of a single character is what that character has to become.
TEST(HuggingFace, NoMergeLeadsToAMarker) {
  for (const char* pre :
       {"null", R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})"}) {
    const testing::TemporaryFolder folder;
    json vocabulary = {{"<", 0}, {"s", 1}, {">", 2}, {"<s", 3}, {"<s>", 4}, {"#", 5}, {"a", 6}};
    json file = {{"version", "1.0"},
                 {"added_tokens", json::array()},
                 {"pre_tokenizer", json::parse(pre)},
                 {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"< s", "<s >"}}}}};
    for (const auto& [content, id] : {std::pair{"<s>", 4}, std::pair{"#", 5}})
      file["added_tokens"].push_back({{"id", id},
                                      {"content", content},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
    std::ofstream(folder / "tokenizer.json") << file.dump();
    const auto tokenizer = create_tokenizer("HuggingFaceTokenizer", {.tokenizer_model = folder / "tokenizer.json"});
    EXPECT_EQ(tokenizer->encode("a<s>#a"), (Ids{6, 3, 2, 5, 6})) << pre;
    EXPECT_EQ(encode_special(*tokenizer, "a<s>#a"), (Ids{6, 4, 5, 6})) << pre;
  }
}

TEST(HuggingFace, BytesThatAreNoTextSurvive) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  for (const char* name : {"gpt2", "llama3", "deepseek", "gpt_neox", "phi"}) {
    const auto tokenizer = load(file_of(case_named(name)));
    for (const std::string& text :
         {all, std::string("\xff"), std::string("a\xc3"), std::string("\xe2\x82 x\xf0\x9f\x98")})
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << name;
  }
  const auto fallback = load(file_of(case_named("gemma")));
  EXPECT_EQ(fallback->decode(fallback->encode("a\xff\xc3z")), "a\xff\xc3z");
}

TEST(HuggingFace, RoundTripsOfOddWhitespace) {
  for (const char* name : {"gpt2", "llama3", "phi", "gemma", "llama2", "starcoder", "deepseek", "gpt_neox"}) {
    const auto tokenizer = load(file_of(case_named(name)));
    for (const std::string text :
         {"a  b\n\tc ", "\r\n", "", " ", "  ", "\xcf\x95\xe2\x88\x80", "Caf\xc3\xa9 \xe2\x80\x94 123 \xf0\x9f\x98\x8a"})
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << name;
  }
}

TEST(HuggingFace, AddedTokenKeepsItsLetters) {
  json file = file_of(case_named("gpt2"));
  file["added_tokens"].push_back({{"id", 421}, {"content", "x\xc4\x8dy"}, {"special", false}});
  const auto tokenizer = load(file);
  EXPECT_EQ(tokenizer->encode("ax\xc4\x8dyb").size(), 3U);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ax\xc4\x8dyb")), "ax\xc4\x8dyb");
}

TEST(HuggingFace, BothSpellingsOfMergesAreEqual) {
  json lines = case_named("qwen2");
  lines["pairs"] = false;
  const auto a = load(file_of(lines)), b = load(file_of(case_named("qwen2")));
  for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(a->encode(random_text(i)), b->encode(random_text(i)));
  json spaced = file_of(case_named("qwen2"));
  spaced["pre_tokenizer"] = nullptr;
  spaced["decoder"] = {{"type", "Fuse"}};
  spaced["model"]["vocab"][" "] = 430;
  spaced["model"]["vocab"]["a b"] = 431;
  spaced["model"]["vocab"][" b"] = 432;
  spaced["model"]["merges"] = json::parse(R"([[" ", "b"], ["a", " b"]])");
  EXPECT_EQ(load(spaced)->encode("a b"), Ids{431});
}

TEST(HuggingFace, LongTextsTakeLinearTime) {
  for (const char* name : {"gpt2", "llama2", "llama2_first", "gemma", "t5", "bare", "bert", "nmt_nfd", "prefix",
                           "scripts", "deepseek", "albert"}) {
    const auto tokenizer = load(file_of(case_named(name)));
    for (const std::string piece : {"a", " ", "\xcc\x81\xcc\x96", "<s", "\xe4\xbd\xa0", "\xff"}) {
      std::string text;
      while (text.size() < 1'000'000) text += piece;
      Ids ids;
      tokenizer->encode_special(text, ids);
      EXPECT_LE(ids.size(), 4 * text.size()) << name;
    }
  }
}

TEST(HuggingFace, NamesOfEndsComeFromTheFilesBeside) {
  const megatron::testing::TemporaryFolder folder;
  json file = file_of(case_named("llama2"));
  std::ofstream(folder / "tokenizer.json") << file.dump();
  const auto plain = make_huggingface_tokenizer({.tokenizer_model = folder.path()});
  EXPECT_EQ(plain->bos(), 1);
  EXPECT_EQ(plain->eod(), 2);
  EXPECT_EQ(plain->pad(), -1);
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"bos_token": null, "eos_token": {"content": "<s>"}, "pad_token": "<unk>", "model_max_length": 1e30})";
  const auto named = make_huggingface_tokenizer({.tokenizer_model = folder / "tokenizer.json"});
  EXPECT_EQ(named->bos(), std::nullopt);
  EXPECT_EQ(named->eod(), 1);
  EXPECT_EQ(named->pad(), 0);
  EXPECT_NE(named->identity_hash(), plain->identity_hash());
  EXPECT_EQ(tokenizer_from_identity(named->identity_json())->eod(), 1);
}

TEST(HuggingFace, RefusesWhatItDoesNotKnowWithItsPlace) {
  const json good = file_of(case_named("llama2"));
  const auto expect = [&](const std::string& pointer, const json& value, const std::string& part) {
    json file = good;
    file[json::json_pointer(pointer)] = value;
    const std::string message = refusal(file);
    EXPECT_NE(message.find(part), std::string::npos) << pointer << ": " << message;
    EXPECT_NE(message.find("tokenizer.json: "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  expect("/version", "2.0", "version: unknown version");
  expect("/surprise", 1, "surprise: is not a key");
  expect("/normalizer", {{"type", "Magic"}}, "normalizer: unknown normalizer \"Magic\"");
  expect("/normalizer/normalizers/1", {{"type", "Magic"}}, "normalizer.normalizers[1]: unknown normalizer");
  expect("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 3}},
         "pre_tokenizer: unknown pre-tokenizer \"FixedLength\"");
  expect("/decoder/decoders/0/type", "Magic", "decoder.decoders[0]: unknown decoder");
  expect("/post_processor", {{"type", "Magic"}}, "post_processor: unknown post-processor");
  expect("/post_processor/special_tokens/<s>/ids", {100000}, "post_processor.special_tokens.<s>.ids[0]: id 100000");
  expect("/model/type", "WordLevel", "model.type: unknown model \"WordLevel\"");
  expect("/model/dropout", 0.1, "model.dropout: dropout");
  expect("/model/unk_token", "<nope>", "model.unk_token: \"<nope>\" is not in the vocabulary");
  expect("/model/vocab/a", -1, "model.vocab.a: id -1 is out of range");
  expect("/model/vocab/a", 1e30, "model.vocab.a");
  expect("/model/vocab/a", 2000000000, "model.vocab.a: id 2000000000 is out of range");
  expect("/model/vocab/a", "7", "model.vocab.a: must be an integer");
  expect("/model/vocab/zzz", 5, "model.vocab.zzz: id 5 is given to");
  expect("/model/merges", json::array(), "model.merges: is empty");
  expect("/model/merges/3", "nope x", "model.merges[3]: \"nope\" is not in the vocabulary");
  expect("/model/merges/3", "a", "model.merges[3]: \"a\" must be two tokens");
  expect("/model/merges/3", "a b c", "model.merges[3]");
  expect("/model/merges/3", {"", "a"}, "model.merges[3]: the first token is empty");
  expect("/model/merges/3", {"a", ""}, "model.merges[3]: the second token is empty");
  expect("/model/merges/3", 7, "model.merges[3]: must be");
  expect("/added_tokens/1/id", 77, "added_tokens[1].id: id 77");
  expect("/added_tokens/1/id", -2, "added_tokens[1].id: id -2 is out of range");
  expect("/added_tokens/1/content", nullptr, "added_tokens[1].content: must be a string");
  expect("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
         "pre_tokenizer.pattern: ");
  expect("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}},
         "pre_tokenizer.pattern: must not be empty");
  expect("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Odd"}},
         "pre_tokenizer.behavior: unknown behavior \"Odd\"");
  expect("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}, "normalizer.precompiled_charsmap");
  json deep = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 40; ++i) deep = {{"type", "Sequence"}, {"normalizers", {deep}}};
  expect("/normalizer", deep, "is nested too deeply");
}

TEST(HuggingFace, RefusesBrokenFilesInOneLine) {
  const std::string whole = file_of(case_named("bert")).dump();
  const megatron::testing::TemporaryFolder folder;
  const std::string path = folder / "tokenizer.json";
  for (std::size_t size = 0; size < whole.size(); size += 997) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    try {
      make_huggingface_tokenizer({.tokenizer_model = path});
      ADD_FAILURE() << size;
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(path + ": not JSON: "), std::string::npos) << message;
      EXPECT_NE(message.find("column"), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  }
  EXPECT_THROW(make_huggingface_tokenizer({.tokenizer_model = folder / "none.json"}), IoError);
  std::filesystem::remove(path);
  EXPECT_THROW(make_huggingface_tokenizer({.tokenizer_model = folder.path()}), ConfigError);
  EXPECT_THROW(make_huggingface_tokenizer({}), ConfigError);
}

TEST(HuggingFace, DamagedNumbersNeverCrash) {
  Random r(7);
  const std::string whole = file_of(case_named("t5")).dump();
  const megatron::testing::TemporaryFolder folder;
  const std::string path = folder / "tokenizer.json";
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = whole;
    for (int change = 0; change < 3; ++change) damaged[r.next(damaged.size())] = "0129-\"{}[],:x"[r.next(13)];
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    try {
      const auto tokenizer = make_huggingface_tokenizer({.tokenizer_model = path});
      tokenizer->decode(tokenizer->encode("hello \xe4\xbd\xa0 world"));
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace megatron::tokenizer
