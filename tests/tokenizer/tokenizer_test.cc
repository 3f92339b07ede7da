#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace megatron::tokenizer {
namespace {

using Ids = std::vector<std::int64_t>;

std::string error_of(const std::string& type, const TokenizerOptions& options = {}) {
  try {
    create_tokenizer(type, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ByteLevel, IdsAreBytes) {
  const auto t = create_tokenizer("ByteLevel");
  EXPECT_EQ(t->vocab_size(), 257);
  EXPECT_EQ(t->eod(), 256);
  EXPECT_EQ(t->pad(), -1);
  EXPECT_EQ(t->encode("aZ\n\xff"), (Ids{97, 90, 10, 255}));
  EXPECT_EQ(t->decode(Ids{104, 105, 256, 33}), "hi!");
  EXPECT_EQ(t->decode(Ids{104, 105, 256, 33}, "\n"), "hi\n!");
  EXPECT_THROW(t->decode(Ids{257}), Error);
  EXPECT_THROW(t->decode(Ids{-1}), Error);
}

TEST(ByteLevel, RoundTripOnAllBytesAndOddWhitespace) {
  const auto t = create_tokenizer("ByteLevel");
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  for (const std::string& text : {all, std::string("a  b\n\tc "), std::string("\r\n"), std::string(), std::string(" "),
                                  std::string("<|endoftext|>"), std::string("h\xc3\xa9")}) {
    const Ids ids = t->encode(text);
    EXPECT_EQ(ids.size(), text.size());
    EXPECT_EQ(t->decode(ids), text);
    for (const std::int64_t id : ids) EXPECT_NE(id, 256) << "literal text never becomes a control token";
  }
}

TEST(NullTokenizer, WhitespaceSeparatedIds) {
  const auto t = create_tokenizer("NullTokenizer", {.vocab_size = 100});
  EXPECT_EQ(t->vocab_size(), 100);
  EXPECT_EQ(t->eod(), 99);
  EXPECT_EQ(t->pad(), -1);
  EXPECT_EQ(t->encode(" 1 2\t99\n"), (Ids{1, 2, 99}));
  EXPECT_EQ(t->encode(""), Ids{});
  EXPECT_EQ(t->encode("  \n "), Ids{});
  EXPECT_EQ(t->decode(Ids{1, 2, 99}), "1 2 99");
  EXPECT_THROW(t->encode("1 x 2"), Error);
  EXPECT_THROW(t->encode("1 2x"), Error);
  EXPECT_THROW(t->encode("100"), Error);
  EXPECT_THROW(t->encode("-1"), Error);
  EXPECT_THROW(t->encode("99999999999999999999"), Error);
}

TEST(NullTokenizer, OptionsSetEodAndPad) {
  const auto t = create_tokenizer("NullTokenizer", {.vocab_size = 60000, .null_eod_id = 7, .null_pad_id = 9});
  EXPECT_EQ(t->eod(), 7);
  EXPECT_EQ(t->pad(), 9);
  EXPECT_EQ(create_tokenizer("NullTokenizer", {.vocab_size = 10, .null_eod_id = -1})->eod(), std::nullopt);
  EXPECT_NE(error_of("NullTokenizer", {.vocab_size = 10, .null_eod_id = 10}).find("--null-tokenizer-eod-id 10"),
            std::string::npos);
  EXPECT_EQ(error_of("NullTokenizer"), "--tokenizer-type NullTokenizer needs --vocab-size");
}

TEST(CreateTokenizer, RefusesByName) {
  for (const char* type : {"BertWordPieceCase", "BertWordPieceLowerCase", "MultimodalTokenizer",
                           "NullMultimodalTokenizer", "SFTTokenizer"}) {
    const std::string message = error_of(type);
    EXPECT_NE(message.find(type), std::string::npos);
    EXPECT_NE(message.find("not built in this version"), std::string::npos);
  }
  EXPECT_NE(error_of("bytelevel").find("nearest is ByteLevel"), std::string::npos);
  EXPECT_NE(error_of("NulTokenizer").find("nearest is NullTokenizer"), std::string::npos);
  EXPECT_NE(error_of("").find("--tokenizer-type is missing"), std::string::npos);
  EXPECT_THROW(create_tokenizer("ByteLevel", {.special_tokens = {"a", ""}}), ConfigError);
}

TEST(Identity, MakesAnEqualTokenizer) {
  const auto a = create_tokenizer("NullTokenizer", {.vocab_size = 500, .null_eod_id = 3, .null_pad_id = 4});
  const auto b = tokenizer_from_identity(a->identity_json());
  EXPECT_EQ(b->identity_json(), a->identity_json());
  EXPECT_EQ(b->vocab_size(), 500);
  EXPECT_EQ(b->eod(), 3);
  EXPECT_EQ(b->pad(), 4);
  EXPECT_EQ(tokenizer_from_identity(R"({"eod_id": 256, "type": "ByteLevel"})")->type(), "ByteLevel");
  const auto none = create_tokenizer("NullTokenizer", {.vocab_size = 10, .null_eod_id = -1});
  EXPECT_EQ(tokenizer_from_identity(none->identity_json())->eod(), std::nullopt);
  EXPECT_THROW(tokenizer_from_identity("{}"), ConfigError);
  EXPECT_THROW(tokenizer_from_identity("not json"), ConfigError);
}

TEST(Tokenizers, LongTextsTakeLinearTime) {
  const auto bytes = create_tokenizer("ByteLevel");
  EXPECT_EQ(bytes->encode(std::string(5'000'000, 'a')).size(), 5'000'000U);
  const auto null = create_tokenizer("NullTokenizer", {.vocab_size = 10});
  EXPECT_TRUE(null->encode(std::string(1'000'000, ' ')).empty());
}

}  // namespace
}  // namespace megatron::tokenizer
