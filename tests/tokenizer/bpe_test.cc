#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

#include "tokenizer/byte_bpe.h"
#include "tokenizer/special_tokens.h"

namespace megatron::tokenizer {
namespace {

using Ids = std::vector<std::uint32_t>;

/// The definition: look through all pairs, merge the leftmost of lowest rank, start again.
Ids merged_by_definition(Ids ids, const std::vector<BpeMerge>& merges) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> ranks;
  for (std::size_t i = 0; i < merges.size(); ++i) ranks.emplace(std::pair(merges[i].left, merges[i].right), i);
  for (;;) {
    std::size_t best = 0, lowest = merges.size();
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second < lowest) {
        lowest = found->second;
        best = i;
      }
    }
    if (lowest == merges.size()) return ids;
    ids[best] = merges[lowest].merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

/// Merges of ids that exist, so that long chains of merges happen.
std::vector<BpeMerge> random_merges(std::mt19937& random, std::uint32_t first_ids, std::uint32_t count) {
  std::vector<BpeMerge> merges;
  for (std::uint32_t i = 0; i < count; ++i)
    merges.push_back({static_cast<std::uint32_t>(random() % (first_ids + i)),
                      static_cast<std::uint32_t>(random() % (first_ids + i)), first_ids + i});
  return merges;
}

TEST(Bpe, MergesAsTheDefinitionSays) {
  std::mt19937 random(7);
  std::size_t merged = 0;
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t letters = 1 + static_cast<std::uint32_t>(random() % 4);
    const auto merges = random_merges(random, letters, static_cast<std::uint32_t>(random() % 12));
    const BpeMerges bpe(merges);
    // Below and above the length from which a heap is used.
    for (const std::size_t length : {0, 1, 2, 3, 17, 63, 64, 65, 66, 300}) {
      Ids ids(length);
      for (auto& id : ids) id = static_cast<std::uint32_t>(random() % letters);
      const Ids wanted = merged_by_definition(ids, merges);
      merged += ids.size() - wanted.size();
      ids.resize(bpe.merge(ids.data(), ids.size()));
      ASSERT_EQ(ids, wanted) << "round " << round << ", length " << length;
    }
  }
  EXPECT_GT(merged, 10000U) << "the test should merge something";
}

TEST(Bpe, TheFirstOfEqualPairsCounts) {
  const std::vector<BpeMerge> merges = {{0, 1, 2}, {0, 1, 3}};
  Ids ids = {0, 1};
  ids.resize(BpeMerges(merges).merge(ids.data(), 2));
  EXPECT_EQ(ids, Ids{2});
}

TEST(Bpe, PairsThatMakeTheSameIdShareItsRank) {
  // 0 1 2 3 = a b ab ba; "aba" may become aba = 4 from (a, ba) or (ab, a).
  const std::vector<BpeMerge> merges = {{0, 3, 4}, {2, 0, 4}};
  Ids ids = {2, 0, 3};  // ab a ba: both pairs make 4, the left one is taken
  ids.resize(BpeMerges(merges, BpeMerges::Rank::merged_id).merge(ids.data(), 3));
  EXPECT_EQ(ids, (Ids{4, 3}));
  ids = {2, 0, 3};
  ids.resize(BpeMerges(merges).merge(ids.data(), 3));
  EXPECT_EQ(ids, (Ids{2, 4}));
}

TEST(Bpe, AMillionIdsOfOnePieceTakeNoSquare) {
  // Each merge doubles: 2^20 letters become one id.
  std::vector<BpeMerge> merges;
  for (std::uint32_t i = 0; i < 20; ++i) merges.push_back({i, i, i + 1});
  Ids ids(std::size_t{1} << 20, 0);
  ids.resize(BpeMerges(merges).merge(ids.data(), ids.size()));
  EXPECT_EQ(ids, Ids{20});
}

ByteBpeConfig small_vocabulary() {
  ByteBpeConfig config;
  for (int b = 0; b < 256; ++b) config.vocabulary.emplace_back(1, static_cast<char>(b));
  config.vocabulary.insert(config.vocabulary.end(), {"th", "the", " the", "xyz"});
  config.merges = {{'t', 'h', 256}, {256, 'e', 257}, {' ', 257, 258}};
  return config;
}

TEST(ByteBpe, WholePiecesFirstOnlyIfAsked) {
  std::vector<std::int64_t> ids;
  ByteBpe(small_vocabulary()).encode_piece("xyz", ids);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{'x', 'y', 'z'}));
  ByteBpeConfig config = small_vocabulary();
  config.whole_pieces_first = true;
  ids.clear();
  ByteBpe(std::move(config)).encode_piece("xyz", ids);
  EXPECT_EQ(ids, std::vector<std::int64_t>{259});
}

TEST(ByteBpe, SeenWordsKeepTheirIds) {
  const ByteBpe bpe(small_vocabulary());
  // Words of all lengths, some of which share their first and last bytes; each is met three times.
  std::vector<std::string> words;
  for (const char* word :
       {"t", "th", "the", "tth", "tthh", "thththe", "aaaabbbb", "aaaaabbbb", "aaaaaabbbb", "aaaabbb", "a", "aa", "aaa",
        " the", "  the", "thethethethethe", "thethethethethet", "thethethethethethe"})
    words.emplace_back(word);
  for (std::size_t length = 1; length < 20; ++length) words.emplace_back(length, 't');
  for (int round = 0; round < 3; ++round)
    for (const std::string& word : words) {
      std::vector<std::int64_t> ids;
      bpe.encode_piece(word, ids);
      Ids bytes(word.begin(), word.end());
      const Ids wanted = merged_by_definition(bytes, small_vocabulary().merges);
      EXPECT_EQ(ids, std::vector<std::int64_t>(wanted.begin(), wanted.end())) << word << ", round " << round;
    }
}

TEST(ByteBpe, BytesWithoutAnIdVanishOrAreUnknown) {
  ByteBpeConfig config;
  config.vocabulary = {"<unk>", "a", "b", "ab"};
  config.merges = {{1, 2, 3}};
  std::vector<std::int64_t> ids;
  ByteBpe(config).encode_piece("axb", ids);
  EXPECT_EQ(ids, std::vector<std::int64_t>{3});
  config.unknown = 0;
  ids.clear();
  ByteBpe(config).encode_piece("axb", ids);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{1, 0, 2}));
}

TEST(ByteBpe, RefusesTwoIdsOfTheSameBytes) {
  ByteBpeConfig config;
  config.vocabulary = {"a", "b", "a"};
  try {
    const ByteBpe bpe(config);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_EQ(std::string(error.what()), "the ids 0 and 2 of the vocabulary stand for the same bytes, a");
  }
}

/// tiktoken's algorithm on strings: merge the neighbours whose bytes together have the lowest rank.
Ids encoded_by_ranks(const std::string& text, const std::vector<std::string>& pieces) {
  std::map<std::string, std::uint32_t> ranks;
  for (std::size_t i = 0; i < pieces.size(); ++i) ranks.emplace(pieces[i], static_cast<std::uint32_t>(i));
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best = parts.size();
    std::uint32_t lowest = BpeMerges::kNone;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && found->second < lowest) {
        lowest = found->second;
        best = i;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(ranks.at(part));
  return ids;
}

TEST(MergesOfRanks, EqualsMergingByBytes) {
  std::mt19937 random(11);
  const auto word = [&](std::size_t longest) {
    std::string text(1 + random() % longest, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> pieces = {"a", "b", "c"};
    for (int i = 0; i < 15; ++i) {
      // Half of the lists are such as training makes: each piece is two earlier ones.
      const std::string piece =
          round % 2 == 0 ? word(5) : pieces[random() % pieces.size()] + pieces[random() % pieces.size()];
      if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) pieces.push_back(piece);
    }
    const BpeMerges bpe(merges_of_ranks(pieces), BpeMerges::Rank::merged_id);
    for (int i = 0; i < 30; ++i) {
      const std::string text = word(i < 25 ? 12 : 100);
      Ids ids;
      for (const char c : text) ids.push_back(static_cast<std::uint32_t>(c - 'a'));
      ids.resize(bpe.merge(ids.data(), ids.size()));
      ASSERT_EQ(ids, encoded_by_ranks(text, pieces)) << text << ", round " << round;
    }
  }
}

TEST(VisibleBytes, AreGpt2sAlphabet) {
  EXPECT_EQ(bytes_to_visible(" a\n"), "\u0120a\u010a");
  EXPECT_EQ(bytes_to_visible("\xff\xad"), "\u00ff\u0143");
  for (int b = 0; b < 256; ++b) {
    const std::string byte(1, static_cast<char>(b));
    EXPECT_EQ(visible_to_bytes(bytes_to_visible(byte)), byte);
  }
  EXPECT_EQ(visible_to_bytes("a b"), std::nullopt);
  EXPECT_EQ(visible_to_bytes("\u0144"), std::nullopt);
  EXPECT_EQ(visible_to_bytes("\xc4"), std::nullopt);
}

TEST(SpecialTokens, TheLongestAtTheLeftmostPlaceWins) {
  const SpecialTokens special({{"<a>", 1}, {"<a><b>", 2}, {"<", 3}, {"<a><c", 4}, {"zz", 5}, {"<a>", 9}});
  const auto find = [&](std::string_view text, std::size_t from) {
    const auto m = special.find(text, from);
    return m ? std::vector<std::size_t>{m->begin, m->end, static_cast<std::size_t>(m->id)} : std::vector<std::size_t>{};
  };
  using V = std::vector<std::size_t>;
  EXPECT_EQ(find("x<a>y", 0), (V{1, 4, 1}));
  EXPECT_EQ(find("x<a><b>", 0), (V{1, 7, 2}));
  EXPECT_EQ(find("x<a><b", 0), (V{1, 4, 1}));
  EXPECT_EQ(find("x<a><c>", 0), (V{1, 6, 4}));
  EXPECT_EQ(find("<b>", 0), (V{0, 1, 3}));
  EXPECT_EQ(find("<b>zzz", 1), (V{3, 5, 5}));
  EXPECT_EQ(find("z", 0), V{});
  EXPECT_EQ(special.id_of("<a>"), 1);
  EXPECT_EQ(special.id_of("<a"), std::nullopt);
  EXPECT_EQ(special.text_of(5), "zz");
  EXPECT_EQ(special.text_of(9), std::nullopt);
}

}  // namespace
}  // namespace megatron::tokenizer
