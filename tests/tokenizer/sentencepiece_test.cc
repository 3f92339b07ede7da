// SentencePiece models against the ids that the sentencepiece library gave for them.
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "support/reference_data.h"
#include "support/temporary_folder.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

using Ids = std::vector<std::int64_t>;
using nlohmann::json;

std::string asset(const std::string& name) { return megatron::testing::reference_dir().string() + "/assets/" + name; }

constexpr const char* kLlama = "tokenizers/llama2-tokenizer.model";
constexpr const char* kUnigram = "tokenizers/spm-unigram8k-nmt_nfkc.model";

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

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The text with spaces in place of "▁", which these models cannot tell apart.
std::string with_spaces(std::string text) {
  for (std::size_t at; (at = text.find("\xe2\x96\x81")) != std::string::npos;) text.replace(at, 3, " ");
  return text;
}

std::unique_ptr<Tokenizer> load(const std::string& model, TokenizerOptions options = {}) {
  options.tokenizer_model = asset(model);
  return make_sentencepiece_tokenizer("SentencePieceTokenizer", options);
}

void expect_golden(const std::string& golden, const std::string& model) {
  MEGATRON_REQUIRE_REFERENCE(std::filesystem::path(asset("golden_tokens/" + golden)));
  MEGATRON_REQUIRE_REFERENCE(std::filesystem::path(asset(model)));
  const auto tokenizer = load(model);
  std::ifstream in(asset("golden_tokens/" + golden));
  for (std::string text; std::getline(in, text);) {
    const json line = without_text(text);
    const std::string bytes = from_hex(line.value("utf8_hex", line.value("raw_hex", "")));
    const Ids ids = tokenizer->encode(bytes);
    EXPECT_EQ(ids, line["ids"].get<Ids>()) << line.dump();
    if (line.contains("decoded_hex")) {
      EXPECT_EQ(tokenizer->decode(ids), from_hex(line["decoded_hex"])) << line.dump();
    } else if (line.contains("utf8_hex")) {
      EXPECT_EQ(tokenizer->decode(ids), with_spaces(bytes)) << line.dump();
    }
    StreamDecoder stream(*tokenizer);
    std::string streamed;
    for (const std::int64_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    EXPECT_EQ(streamed, tokenizer->decode(ids)) << line.dump();
  }
}

TEST(SentencePiece, LlamaGolden) { expect_golden("llama.jsonl", kLlama); }
TEST(SentencePiece, LlamaGoldenOfRawBytes) { expect_golden("llama_rawbytes.jsonl", kLlama); }
TEST(SentencePiece, BpeGolden) { expect_golden("spm_bpe4k.jsonl", "tokenizers/spm-bpe4k-bytefallback.model"); }
TEST(SentencePiece, UnigramGolden) { expect_golden("spm_uni8k.jsonl", kUnigram); }

Ids by_library(const sentencepiece::SentencePieceProcessor& library, const std::string& text) {
  std::vector<int> ids;
  EXPECT_TRUE(library.Encode(text, &ids).ok());
  return {ids.begin(), ids.end()};
}

std::string random_text(std::mt19937& random) {
  constexpr const char* kPieces[] = {"the",
                                     " ",
                                     "  ",
                                     "\n",
                                     "ing",
                                     "A",
                                     "zebra",
                                     "3.14",
                                     "\xc3\xa9",
                                     "e\xcc\x81",
                                     "\xe4\xb8\xad",
                                     "國",
                                     "你好",
                                     "ﬁ",
                                     "½",
                                     "㍿",
                                     "👩‍👩‍👧",
                                     "🏳️‍🌈",
                                     "\xe2\x96\x81",
                                     "<s>",
                                     "<unk>",
                                     "<0x41>",
                                     "\xff",
                                     "\xe4\xb8",
                                     "\xf0",
                                     "مرحبا",
                                     "\xc2\xa0",
                                     "\xe3\x80\x80",
                                     "\t",
                                     "x\xcc\xa3\xcc\x81",
                                     "한국어",
                                     "\xe1\x84\x80\xe1\x85\xa1",
                                     "\xcd\xb8"};
  std::string text;
  for (std::size_t i = 0, count = random() % 30; i < count; ++i) {
    if (random() % 4 == 0) {
      append_character(text, static_cast<char32_t>(1 + random() % (random() % 2 == 0 ? 0xd7ff : 0x7ff)));
    } else {
      text += kPieces[random() % std::size(kPieces)];
    }
  }
  return text;
}

void expect_same_as_library(const std::string& model, std::size_t most) {
  MEGATRON_REQUIRE_REFERENCE(std::filesystem::path(asset(model)));
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load(asset(model)).ok());
  EXPECT_NE(SentencePieceModel::make(SentencePieceFile::read(model, slurp(asset(model))), {}), nullptr)
      << "these models do not need the library";
  const auto tokenizer = load(model);
  std::mt19937 random(5);
  for (int i = 0; i < 10'000; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(tokenizer->encode(text), by_library(library, text)) << i << ": " << text;
  }
  // As one text: sums of scores grow long. Tables and code have runs of signs, with many ways that are equally good.
  const std::string here = MEGATRON_SOURCE_DIR;
  for (const std::string& path : {asset("text/tinyshakespeare.txt"), asset("text/wikitext-2.valid.txt"),
                                  here + "/docs/options.md", here + "/docs/performance.md", here + "/CMakeLists.txt"}) {
    if (!std::filesystem::exists(path)) continue;
    const std::string text = slurp(path).substr(0, most);
    EXPECT_TRUE(tokenizer->encode(text) == by_library(library, text)) << path;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      ASSERT_EQ(tokenizer->encode(line), by_library(library, line)) << line;
  }
}

TEST(SentencePiece, LlamaEqualsTheLibrary) { expect_same_as_library(kLlama, 200'000); }
TEST(SentencePiece, BpeEqualsTheLibrary) { expect_same_as_library("tokenizers/spm-bpe4k-bytefallback.model", 200'000); }
TEST(SentencePiece, UnigramEqualsTheLibrary) { expect_same_as_library(kUnigram, 1'000'000); }

TEST(SentencePiece, ControlSymbolsAreTextUnlessAsked) {
  MEGATRON_REQUIRE_REFERENCE(std::filesystem::path(asset(kLlama)));
  const auto tokenizer = load(kLlama);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eod(), 2);
  EXPECT_EQ(tokenizer->pad(), -1);
  EXPECT_EQ(tokenizer->vocab_size(), 32000);
  const std::string text = "<s>Hello</s>";
  const Ids plain = tokenizer->encode(text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 1) + std::count(plain.begin(), plain.end(), 2), 0);
  EXPECT_EQ(tokenizer->decode(plain), text);
  Ids parsed;
  tokenizer->encode_special(text, parsed);
  EXPECT_EQ(parsed, (Ids{1, 15043, 2}));
  EXPECT_EQ(tokenizer->decode(Ids{15043, 2, 15043}, "|"), "Hello|Hello");
  EXPECT_THROW(tokenizer->decode(Ids{32000}), Error);
  EXPECT_THROW(tokenizer->decode(Ids{-1}), Error);
}

TEST(SentencePiece, LegacyMarkers) {
  MEGATRON_REQUIRE_REFERENCE(std::filesystem::path(asset(kLlama)));
  TokenizerOptions options;
  options.special_tokens = {"<pad>", "</s>"};
  EXPECT_THROW(load(kLlama, options), ConfigError);
  options.sentencepiece_legacy = true;
  options.vocab_extra_ids = 2;
  const auto tokenizer = load(kLlama, options);
  EXPECT_EQ(tokenizer->vocab_size(), 32003);
  Ids ids;
  tokenizer->encode_special("Hello<pad> Hello</s><extra_id_1>", ids);
  EXPECT_EQ(ids, (Ids{15043, 32000, 15043, 2, 32002}));
  EXPECT_EQ(tokenizer->decode(Ids{32000, 15043, 32001}), "<pad>Hello<extra_id_0>");
}

TEST(SentencePiece, ExtraSpacesSurviveWhenAsked) {
  MEGATRON_REQUIRE_REFERENCE(std::filesystem::path(asset(kUnigram)));
  TokenizerOptions options;
  EXPECT_EQ(load(kUnigram)->decode(load(kUnigram)->encode("x  y")), "x y");
  options.sentencepiece_keep_extra_whitespaces = true;
  const auto tokenizer = load(kUnigram, options);
  EXPECT_GT(tokenizer->encode("x  y").size(), load(kUnigram)->encode("x  y").size());
  EXPECT_EQ(tokenizer->encode("x y"), load(kUnigram)->encode("x y"));
}

TEST(SentencePiece, RefusesBrokenFilesWithTheOffset) {
  MEGATRON_REQUIRE_REFERENCE(std::filesystem::path(asset(kUnigram)));
  const std::string whole = slurp(asset(kUnigram));
  const megatron::testing::TemporaryFolder folder;
  const std::string path = folder / "tokenizer.model";
  const auto refusal = [&](const std::string& bytes) -> std::string {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    try {
      TokenizerOptions options;
      options.tokenizer_model = path;
      make_sentencepiece_tokenizer("SentencePieceTokenizer", options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(whole), "");
  for (std::size_t size = 0; size < whole.size(); size += whole.size() / 40 + 1) {
    const std::string message = refusal(whole.substr(0, size));
    EXPECT_NE(message.find(path + ": offset "), std::string::npos) << size << " " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_NE(refusal("{\"version\": \"1.0\"}").find("another kind of file"), std::string::npos);
  TokenizerOptions options;
  options.tokenizer_model = folder / "none.model";
  EXPECT_THROW(make_sentencepiece_tokenizer("Llama2Tokenizer", options), IoError);
  EXPECT_THROW(make_sentencepiece_tokenizer("Llama2Tokenizer", {}), ConfigError);
}

TEST(SentencePiece, ThreadsShareOne) {
  MEGATRON_REQUIRE_REFERENCE(std::filesystem::path(asset(kLlama)));
  const auto tokenizer = load(kLlama);
  const std::string text = "The quick brown fox jumps over the lazy dog.";
  const Ids expected = tokenizer->encode(text);
  std::array<int, 4> wrong = {};
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer->encode(text) != expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

}  // namespace
}  // namespace megatron::tokenizer
