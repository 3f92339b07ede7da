#include "tokenizer/byte_bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "support/reference_data.h"
#include "support/temporary_folder.h"

namespace megatron::tokenizer {
namespace {

using Ids = std::vector<std::int64_t>;
using testing::TemporaryFolder;

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string base64(const std::string& bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (int shift = 18; shift >= 0; shift -= 6) out += kDigits[bits >> shift & 63];
    for (std::size_t missing = i + 3; missing > bytes.size(); --missing)
      out[out.size() - (missing - bytes.size())] = '=';
  }
  return out;
}

/// GPT-2's files with the bytes, five merges and the end mark: 256 th, 257 the, 258 Ġthe, 259 Ġ Ġ, 260 o k, 261 end.
struct SmallGpt2 {
  TemporaryFolder folder;
  nlohmann::json vocabulary;
  std::string merges = "#version: 0.2\nt h\nth e\n\u0120 the\n\u0120 \u0120\no k\n";

  SmallGpt2() {
    for (int b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      vocabulary[bytes_to_visible({&byte, 1})] = b;
    }
    const std::array<const char*, 6> more = {"th", "the", "\u0120the", "\u0120\u0120", "ok", "<|endoftext|>"};
    for (std::size_t i = 0; i < more.size(); ++i) vocabulary[more[i]] = 256 + i;
  }
  TokenizerOptions options() const {
    TokenizerOptions o;
    o.vocab_file = folder / "vocab.json";
    o.merge_file = folder / "merges.txt";
    return o;
  }
  std::unique_ptr<Tokenizer> make(TokenizerOptions o) const {
    write(o.vocab_file, vocabulary.dump());
    write(o.merge_file, merges);
    return create_tokenizer("GPT2BPETokenizer", o);
  }
  std::unique_ptr<Tokenizer> make() const { return make(options()); }
};

TEST(Gpt2Bpe, EncodesDecodesAndKnowsItsEnd) {
  const SmallGpt2 files;
  const auto t = files.make();
  EXPECT_EQ(t->vocab_size(), 262);
  EXPECT_EQ(t->eod(), 261);
  EXPECT_EQ(t->encode("the the  ok"), (Ids{257, 258, ' ', ' ', 260}));
  EXPECT_EQ(t->piece(258), " the");
  EXPECT_EQ(t->piece(261), "<|endoftext|>");
  EXPECT_THROW(t->piece(262), Error);
  EXPECT_THROW(t->decode(Ids{-1}), Error);
  EXPECT_EQ(t->decode(Ids{257, 261, 260}, "|"), "the|ok");
}

TEST(Gpt2Bpe, MarkersAreTextUnlessAskedFor) {
  const SmallGpt2 files;
  const auto t = files.make();
  const std::string text = "ok<|endoftext|>the";
  const Ids plain = t->encode(text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 261), 0);
  EXPECT_EQ(t->decode(plain), text);
  Ids special;
  t->encode(text, {.parse_special = true, .ends = TextEnds::eos}, special);
  EXPECT_EQ(special, (Ids{260, 261, 257, 261}));
}

TEST(Gpt2Bpe, AnyBytesComeBack) {
  const SmallGpt2 files;
  const auto t = files.make();
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  for (const std::string& text : {all, all + all, std::string("a  b\n\tc "), std::string("\r\n"), std::string(),
                                  std::string(" "), std::string(1, '\0'), std::string("\u03d5\u2200")})
    EXPECT_EQ(t->decode(t->encode(text)), text);
}

TEST(Gpt2Bpe, GivesNewMarkersTheIdsBehind) {
  const SmallGpt2 files;
  TokenizerOptions o = files.options();
  o.special_tokens = {"<x>", "<|endoftext|>"};
  const auto t = files.make(o);
  EXPECT_EQ(t->vocab_size(), 263);
  Ids ids;
  t->encode("<x>ok", {.parse_special = true}, ids);
  EXPECT_EQ(ids, (Ids{262, 260}));
  EXPECT_EQ(t->decode(ids), "<x>ok");
  EXPECT_NE(t->identity_hash(), files.make()->identity_hash());
}

TEST(Gpt2Bpe, NamesTheLineOfADamagedMerge) {
  SmallGpt2 files;
  const std::string path = files.options().merge_file;
  const auto error_with = [&](const std::string& merges) {
    files.merges = merges;
    return error_of([&] { files.make(); });
  };
  EXPECT_EQ(error_with("#version: 0.2\nt h\nth\n"),
            "--merge-file " + path + ":3: 'th' is not two tokens with one space between them");
  EXPECT_EQ(error_with("t h\nt h e\n"),
            "--merge-file " + path + ":2: 't h e' is not two tokens with one space between them");
  EXPECT_EQ(error_with("t q\n"), "--merge-file " + path + ":1: 'tq' is not in the vocabulary");
  EXPECT_EQ(error_with("t h\nt h\n"), "--merge-file " + path + ":2: the merge 't h' stands in line 1 already");
  EXPECT_EQ(error_with("#version: 0.2\n"), "--merge-file " + path + ": holds no merges");
  EXPECT_EQ(error_with("t h\r\nth e\r\n"), "");
}

TEST(Gpt2Bpe, RefusesADamagedVocabulary) {
  SmallGpt2 files;
  const TokenizerOptions o = files.options();
  const std::string prefix = "--vocab-file " + o.vocab_file + ": ";
  files.make();
  const std::string whole = files.vocabulary.dump();
  write(o.vocab_file, whole.substr(0, 1000));
  EXPECT_NE(error_of([&] { create_tokenizer("GPT2BPETokenizer", o); }).find(prefix + "at byte 1001: not JSON"),
            std::string::npos);
  files.vocabulary["zz"] = 5;
  EXPECT_NE(error_of([&] { files.make(); }).find("share the id 5"), std::string::npos);
  files.vocabulary["zz"] = "five";
  EXPECT_EQ(error_of([&] { files.make(); }), prefix + "the id of 'zz' is \"five\", not a number from 0 on");
  files.vocabulary.erase("zz");
  files.vocabulary.erase("a");
  EXPECT_EQ(error_of([&] { files.make(); }), prefix + "has no token for the byte 97, 'a'; cut short or damaged?");
  std::filesystem::remove(o.vocab_file);
  EXPECT_NE(error_of([&] { create_tokenizer("GPT2BPETokenizer", o); }).find("--vocab-file " + o.vocab_file),
            std::string::npos);
  EXPECT_EQ(error_of([&] { create_tokenizer("GPT2BPETokenizer", {}); }),
            "--tokenizer-type GPT2BPETokenizer needs --vocab-file vocab.json and --merge-file merges.txt");
}

TEST(Identity, HoldsPathsAndNoticesChangedFiles) {
  SmallGpt2 files;
  const auto t = files.make();
  const auto again = tokenizer_from_identity(t->identity_json());
  EXPECT_EQ(again->identity_hash(), t->identity_hash());
  EXPECT_EQ(again->encode("the ok"), t->encode("the ok"));
  {
    // The same files elsewhere: other identity, same hash.
    const SmallGpt2 moved;
    const auto other = moved.make();
    EXPECT_NE(other->identity_json(), t->identity_json());
    EXPECT_EQ(other->identity_hash(), t->identity_hash());
  }
  files.merges = "t h\nth e\n";
  files.make();
  EXPECT_NE(error_of([&] { tokenizer_from_identity(t->identity_json()); }).find("the files hold something else now"),
            std::string::npos);
  std::filesystem::remove(files.options().merge_file);
  EXPECT_NE(error_of([&] { tokenizer_from_identity(t->identity_json()); }).find(files.options().merge_file),
            std::string::npos);
}

TEST(StreamDecoder, NeverSplitsACharacter) {
  const SmallGpt2 files;
  const auto t = files.make();
  const std::string text = "\u03d5\u2200 the \U0001f600\xff ok\xf0\x9f";
  StreamDecoder stream(*t);
  std::string joined;
  for (const std::int64_t id : t->encode(text)) {
    const std::string part = stream.push(id);
    EXPECT_TRUE(part.empty() || (static_cast<unsigned char>(part[0]) & 0xc0) != 0x80) << part;
    joined += part;
  }
  EXPECT_EQ(joined, text.substr(0, text.size() - 2));
  EXPECT_EQ(stream.finish(), "\xf0\x9f");
  EXPECT_EQ(stream.finish(), "");
}

struct SmallTiktoken {
  TemporaryFolder folder;
  std::vector<std::string> pieces;

  SmallTiktoken() {
    for (int b = 0; b < 256; ++b) pieces.emplace_back(1, static_cast<char>(b));
    pieces.insert(pieces.end(), {"th", "the", " the", "  ", "12"});
  }
  std::string text() const {
    std::string out;
    for (std::size_t i = 0; i < pieces.size(); ++i) out += str_cat(base64(pieces[i]), " ", i, "\n");
    return out;
  }
  TokenizerOptions options() const {
    TokenizerOptions o;
    o.tokenizer_model = folder / "small.tiktoken";
    o.tiktoken_pattern = "cl100k";
    return o;
  }
  std::unique_ptr<Tokenizer> make(const std::string& content) const {
    write(options().tokenizer_model, content);
    return create_tokenizer("TikTokenizer", options());
  }
};

TEST(TikTokenizer, ReadsRanksAndAppendsTheEnd) {
  const SmallTiktoken files;
  const auto t = files.make(files.text());
  EXPECT_EQ(t->vocab_size(), 262);
  EXPECT_EQ(t->eod(), 261);
  EXPECT_EQ(t->encode("the the 12345"), (Ids{257, 258, ' ', 260, '3', '4', '5'}));
  EXPECT_EQ(tokenizer_from_identity(t->identity_json())->identity_hash(), t->identity_hash());
  TokenizerOptions o = files.options();
  o.tiktoken_pattern = named_pattern("cl100k");
  o.tiktoken_num_special_tokens = 1000;  // has no meaning here
  EXPECT_EQ(create_tokenizer("TikTokenizer", o)->encode("the 1234"), t->encode("the 1234"));
  EXPECT_EQ(create_tokenizer("TikTokenizer", o)->identity_hash(), t->identity_hash());
}

TEST(TikTokenizer, ReadsMegatronsJson) {
  const SmallTiktoken files;
  nlohmann::json list;
  for (std::size_t i = 0; i < files.pieces.size(); ++i)
    list.push_back({{"rank", i}, {"token_bytes", base64(files.pieces[i])}, {"token_str", ""}});
  TokenizerOptions o = files.options();
  write(o.tokenizer_model, list.dump());
  o.tiktoken_pattern = "";
  const auto t = create_tokenizer("TikTokenizer", o);
  EXPECT_EQ(t->vocab_size(), 1261);
  EXPECT_EQ(t->bos(), 1);
  EXPECT_EQ(t->eod(), 2);
  EXPECT_EQ(t->pad(), 4);
  EXPECT_EQ(t->encode("the 12"), (Ids{1257, 1000 + ' ', 1000 + '1', 1000 + '2'}));
  EXPECT_EQ(t->piece(999), "<SPECIAL_999>");
  o.tiktoken_pattern = "v2";
  o.tiktoken_num_special_tokens = 1000;
  EXPECT_EQ(create_tokenizer("TikTokenizer", o)->identity_hash(), t->identity_hash());
  EXPECT_EQ(tokenizer_from_identity(t->identity_json())->identity_hash(), t->identity_hash());
  o.tiktoken_num_special_tokens = 10;
  o.vocab_size = 268;
  const auto small = create_tokenizer("TikTokenizer", o);
  EXPECT_EQ(small->vocab_size(), 268);
  EXPECT_EQ(small->encode(" the"), (Ids{10 + ' ', 267}));
  o.tiktoken_num_special_tokens = 3;
  EXPECT_NE(
      error_of([&] { create_tokenizer("TikTokenizer", o); }).find("--tiktoken-num-special-tokens 3: must be at least"),
      std::string::npos);
}

TEST(TikTokenizer, NamesTheLineOfDamage) {
  const SmallTiktoken files;
  const std::string path = files.options().tokenizer_model, whole = files.text();
  const auto error_with = [&](const std::string& content) { return error_of([&] { files.make(content); }); };
  EXPECT_EQ(error_with(whole + "dGg 300\n"), "--tokenizer-model " + path + ":262: 'dGg' is not base64");
  EXPECT_EQ(error_with(whole + "dGho\n"), "--tokenizer-model " + path + ":262: '' is not a rank");
  EXPECT_EQ(error_with(whole + "dGho 7\n"), "--tokenizer-model " + path + ":262: the rank 7 is given twice");
  EXPECT_EQ(error_with(whole + "dGho 99999999\n"),
            "--tokenizer-model " + path + ":262: the rank 99999999 is too large for a file of 263 lines");
  EXPECT_EQ(error_with(whole.substr(0, 70)),
            "--tokenizer-model " + path + ": has no token for the byte 10; cut short or damaged?");
  TokenizerOptions o = files.options();
  o.tiktoken_pattern = "cl200k";
  EXPECT_NE(error_of([&] { create_tokenizer("TikTokenizer", o); }).find("--tiktoken-pattern cl200k: unknown"),
            std::string::npos);
}

TEST(TikTokenizer, ThreadsShareIt) {
  const SmallTiktoken files;
  const auto t = files.make(files.text());
  std::string text;
  for (int i = 0; i < 3000; ++i) text += str_cat(" the", i % 700, " word", i % 91, "\n");
  const Ids wanted = files.make(files.text())->encode(text);
  std::array<Ids, 4> ids;
  std::vector<std::thread> threads;
  for (auto& out : ids) threads.emplace_back([&] { t->encode(text, out); });
  for (auto& thread : threads) thread.join();
  for (const auto& out : ids) EXPECT_EQ(out, wanted);
}

/// {"mode", "utf8_hex", "ids"} of a line; its "text" may hold half a surrogate pair and is passed over.
struct Golden {
  bool special = false;
  std::string text;
  Ids ids;

  explicit Golden(const std::string& line) {
    const std::size_t text_begins = line.find("\"text\""), text_ends = line.find("\"utf8_hex\"");
    const auto json = nlohmann::json::parse(line.substr(0, text_begins) + line.substr(text_ends));
    special = json.value("mode", "") == "special";
    const std::string hex = json["utf8_hex"];
    for (std::size_t i = 0; i < hex.size(); i += 2) text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    ids = json["ids"].get<Ids>();
  }
};

void compare_with_golden(const std::string& name, const std::string& type, const TokenizerOptions& options) {
  const auto path = testing::reference_dir() / "assets" / "golden_tokens" / (name + ".jsonl");
  MEGATRON_REQUIRE_REFERENCE(path);
  const auto t = create_tokenizer(type, options);
  std::ifstream in(path);
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    const Golden golden(line);
    Ids ids;
    t->encode(golden.text, {.parse_special = golden.special}, ids);
    EXPECT_EQ(ids, golden.ids) << line.substr(0, 200);
    EXPECT_EQ(t->decode(ids, "<|endoftext|>"), golden.text) << line.substr(0, 200);
    StreamDecoder stream(*t);
    std::string streamed;
    for (const std::int64_t id : ids)
      if (id != t->eod()) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), t->decode(ids)) << line.substr(0, 200);
  }
  EXPECT_GT(count, 200);
}

std::string asset(const std::string& name) { return testing::reference_dir() / "assets" / "tokenizers" / name; }

TEST(GoldenTokens, Gpt2) {
  TokenizerOptions o;
  o.vocab_file = asset("gpt2-encoder.json");
  o.merge_file = asset("gpt2-vocab.bpe");
  compare_with_golden("gpt2", "GPT2BPETokenizer", o);
}

TEST(GoldenTokens, Cl100k) {
  TokenizerOptions o;
  o.tokenizer_model = asset("cl100k_base.tiktoken");
  o.tiktoken_pattern = "cl100k";
  compare_with_golden("cl100k", "TikTokenizer", o);
}

TEST(GoldenTokens, O200k) {
  TokenizerOptions o;
  o.tokenizer_model = asset("o200k_base.tiktoken");
  o.tiktoken_pattern = "o200k";
  compare_with_golden("o200k", "TikTokenizer", o);
}

}  // namespace
}  // namespace megatron::tokenizer
