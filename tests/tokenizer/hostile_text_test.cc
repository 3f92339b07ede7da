// Texts that no writer would write, at a size where a step that takes the square of a length would not end.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "support/reference_data.h"
#include "tokenizer/tokenizer.h"

namespace megatron::tokenizer {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::size_t kBytes = 400'000;  // its square is more work than a test may take, for each text

std::string asset(const std::string& name) {
  return (testing::reference_dir() / "assets" / "tokenizers" / name).string();
}

std::string repeated(std::string_view piece) {
  std::string text;
  text.reserve(kBytes + piece.size());
  while (text.size() < kBytes) text += piece;
  return text;
}

struct Hostile {
  const char* name;
  std::string text;
  bool is_text = true;  // well-formed UTF-8
};

std::vector<Hostile> hostile_texts() {
  std::mt19937 random(11);
  std::string letters, bytes, marks = "e";
  const std::string_view some_marks[] = {"\xcc\x81",     "\xcc\x96",     "\xcc\xa3",
                                         "\xe2\x80\x8d", "\xe2\x80\x8b", "\xef\xb8\x8f"};
  while (letters.size() < kBytes) letters += static_cast<char>('a' + random() % 26);
  while (bytes.size() < kBytes) bytes += static_cast<char>(static_cast<unsigned char>(random() % 256));
  while (marks.size() < kBytes) marks += some_marks[random() % std::size(some_marks)];
  return {{"one letter", repeated("a")},
          {"one capital", repeated("Q")},
          {"letters without a space", letters},
          {"spaces", repeated(" ")},
          {"line breaks", repeated("\n")},
          {"spaces and line breaks", repeated("  \n \r\n")},
          {"one digit", repeated("7")},
          {"one sign", repeated("=")},
          {"apostrophes", repeated("'")},
          {"beginnings of markers", repeated("<|endoftex")},
          {"one Chinese character", repeated("\xe4\xb8\xad")},
          {"family emoji", repeated("\xf0\x9f\x91\xa9\xe2\x80\x8d")},
          {"marks and characters of no width", marks},
          {"any bytes", bytes, false},
          {"continuation bytes", repeated("\x80"), false},
          {"zero bytes", std::string(kBytes, '\0')}};
}

/// Encodes every text: the parts behind each other give the whole back where decoding is exact.
void expect_all(const Tokenizer& tokenizer, bool exact) {
  for (const Hostile& hostile : hostile_texts()) {
    SCOPED_TRACE(hostile.name);
    Ids ids;
    tokenizer.encode_special(hostile.text, ids);
    EXPECT_FALSE(ids.empty() && hostile.is_text && exact);
    // The library of SentencePiece takes a byte that is no text for the three bytes of U+FFFD.
    EXPECT_LE(ids.size(), (exact ? 1 : 3) * hostile.text.size() + 2);
    for (const std::int64_t id : ids) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, tokenizer.vocab_size());
    }
    if (exact) {
      EXPECT_TRUE(tokenizer.decode(ids) == hostile.text);
    }
  }
}

void expect_type(const std::string& type, TokenizerOptions options, bool exact) {
  for (const std::string& file : {options.vocab_file, options.tokenizer_model})
    if (!file.empty()) MEGATRON_REQUIRE_REFERENCE(std::filesystem::path(file));
  expect_all(*create_tokenizer(type, options), exact);
}

TEST(HostileText, Gpt2) {
  expect_type("GPT2BPETokenizer", {.vocab_file = asset("gpt2-encoder.json"), .merge_file = asset("gpt2-vocab.bpe")},
              /*exact=*/true);
}
TEST(HostileText, Cl100k) {
  expect_type("TikTokenizer", {.tokenizer_model = asset("cl100k_base.tiktoken"), .tiktoken_pattern = "cl100k"}, true);
}
TEST(HostileText, O200k) {
  expect_type("TikTokenizer", {.tokenizer_model = asset("o200k_base.tiktoken"), .tiktoken_pattern = "o200k"}, true);
}
TEST(HostileText, Llama3) {
  expect_type("HuggingFaceTokenizer", {.tokenizer_model = asset("llama3-tokenizer.json")}, true);
}
TEST(HostileText, Qwen3) {  // NFC puts marks into another order
  expect_type("HuggingFaceTokenizer", {.tokenizer_model = asset("qwen3-tokenizer.json")}, false);
}
TEST(HostileText, Mistral) {  // bytes that are no text become replacement characters
  expect_type("HuggingFaceTokenizer", {.tokenizer_model = asset("mistral7b-v0.1-tokenizer.json")}, false);
}
TEST(HostileText, SentencePieceLlama) {
  expect_type("SentencePieceTokenizer", {.tokenizer_model = asset("llama2-tokenizer.model")}, false);
}
TEST(HostileText, SentencePieceBpe) {
  expect_type("SentencePieceTokenizer", {.tokenizer_model = asset("spm-bpe4k-bytefallback.model")}, false);
}
TEST(HostileText, SentencePieceUnigram) {
  expect_type("SentencePieceTokenizer", {.tokenizer_model = asset("spm-unigram8k-nmt_nfkc.model")}, false);
}
TEST(HostileText, ByteLevel) { expect_type("ByteLevel", {}, true); }

}  // namespace
}  // namespace megatron::tokenizer
