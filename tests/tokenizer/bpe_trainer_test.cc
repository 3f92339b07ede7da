#include "tokenizer/bpe_trainer.h"

#include <gtest/gtest.h>

#include <set>

#include "base/check.h"
#include "tokenizer/byte_bpe.h"

namespace megatron::tokenizer {
namespace {

/// Bytes with many equal and overlapping pairs: the words of make_trained_bpe.py.
WordCounts made_words() {
  const char* const letters[] = {"a", "a", "b", "c", "d", "e", "\xC3\xA9", " "};
  WordCounts words;
  std::uint64_t state = 1;
  for (int word = 0; word < 4000; ++word) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t length = 1 + (state >> 60), bits = state >> 8;
    std::string text;
    for (std::uint64_t i = 0; i < length; ++i) text += letters[bits >> 3 * i & 7];
    words.add(text);
  }
  return words;
}

std::uint64_t checksum(const TrainedBpe& bpe) {
  std::uint64_t value = 0;
  for (const auto& [left, right] : bpe.merges)
    value = value * 1000003 + static_cast<std::uint64_t>(left) * 65537 + static_cast<std::uint64_t>(right);
  return value;
}

using Merges = std::vector<std::pair<std::int32_t, std::int32_t>>;

/// What make_trained_bpe.py prints.
TEST(BpeTrainer, EqualsHuggingFace) {
  struct Case {
    BpeTrainerOptions options;
    std::size_t tokens, merges;
    std::uint64_t sum;
    std::vector<std::string> last;
  };
  const Case cases[] = {{{300, 0, {}}, 300, 44, 4309475770579110121ULL, {"\u00C3\u00A9c", "aac", "db"}},
                        {{1000, 0, {"<s>", "aa"}}, 1000, 743, 13389969367235667685ULL, {"bebb", "bebd", "be\u0120ad"}},
                        {{8192, 3, {}},
                         1076,
                         820,
                         9170913458553531014ULL,
                         {"aabbab",
                          "\u00C3\u00A9\u00C3\u00A9\u00C3\u00A9"
                          "ae",
                          "\u0120ddd\u00C3\u00A9"}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.options.vocab_size);
    const TrainedBpe bpe = train_bpe(made_words(), c.options);
    EXPECT_EQ(bpe.tokens.size(), c.tokens);
    EXPECT_EQ(bpe.merges.size(), c.merges);
    EXPECT_EQ(checksum(bpe), c.sum);
    EXPECT_EQ(std::vector<std::string>(bpe.tokens.end() - 3, bpe.tokens.end()), c.last);
  }
  const Merges first = {{127, 102}, {64, 64}, {64, 67},  {64, 68}, {64, 220}, {64, 256},
                        {64, 65},   {64, 66}, {68, 256}, {65, 65}, {66, 67},  {220, 220}};
  const TrainedBpe bpe = train_bpe(made_words(), {300, 0, {}});
  EXPECT_EQ(Merges(bpe.merges.begin(), bpe.merges.begin() + 12), first);
}

TEST(BpeTrainer, PartsOfTheCountsAddUp) {
  WordCounts parts;
  for (int i = 0; i < 3; ++i) parts.add(made_words());
  parts.add("zz", 50000);
  const TrainedBpe bpe = train_bpe(parts, {257, 0, {}});
  ASSERT_EQ(bpe.merges.size(), 1U);
  EXPECT_EQ(bpe.tokens.back(), "zz");
  EXPECT_EQ(bpe.tokens[static_cast<std::size_t>(bpe.merges[0].first)], "z");
}

TEST(BpeTrainer, EveryByteHasACharacterOfItsOwn) {
  std::vector<std::string> characters;
  for (int byte = 0; byte < 256; ++byte)
    characters.push_back(bytes_to_visible(std::string(1, static_cast<char>(byte))));
  EXPECT_EQ(std::set<std::string>(characters.begin(), characters.end()).size(), 256U);
  EXPECT_EQ(characters['A'], "A");
  EXPECT_EQ(characters[' '], "\u0120");
  EXPECT_EQ(characters[0xAD], "\u0143");
  EXPECT_EQ(train_bpe({}, {256, 0, {}}).merges.size(), 0U);
}

TEST(BpeTrainer, RefusesWhatCannotBe) {
  const auto refuses = [](const BpeTrainerOptions& options, const std::string& what) {
    try {
      train_bpe({}, options);
      ADD_FAILURE() << what;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refuses({255, 0, {}}, "nearest: 256");
  refuses({257, 0, {"<a>", "<b>"}}, "nearest: 258");
  refuses({300, 0, {"<a>", "<a>"}}, "'<a>' is named twice");
  refuses({300, 0, {""}}, "an empty name");
}

}  // namespace
}  // namespace megatron::tokenizer
