// Encoding part by part against byte-pair encoding by its definition, for vocabularies whose merges hold parts of
// characters.
#include "tokenizer/joints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>

#include "base/check.h"
#include "tokenizer/byte_bpe.h"
#include "tokenizer/char_bpe.h"

namespace megatron::tokenizer {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::array<const char*, 10> kCharacters = {"a", "b", " ", "é", "è", "中", "丮", "亭", "😀", "😐"};

/// Look through all pairs, merge the leftmost of lowest rank, start again.
Ids merged_by_definition(Ids ids, const std::vector<BpeMerge>& merges) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> ranks;
  for (std::size_t i = 0; i < merges.size(); ++i) ranks.emplace(std::pair(merges[i].left, merges[i].right), i);
  for (;;) {
    std::size_t best = 0, lowest = merges.size();
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found == ranks.end() || found->second >= lowest) continue;
      lowest = found->second;
      best = i;
    }
    if (lowest == merges.size()) return ids;
    ids[best] = merges[lowest].merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

/// `count` merges of neighbours that stand in random texts, over ids that stand for `texts`, which grow.
std::vector<BpeMerge> random_merges(std::mt19937& random, std::size_t count, const std::vector<std::uint32_t>& first,
                                    std::vector<std::string>& texts) {
  std::vector<BpeMerge> merges;
  std::vector<std::uint32_t> ids = first;
  std::set<std::string> known(texts.begin(), texts.end());
  while (merges.size() < count) {
    const std::uint32_t left = ids[random() % ids.size()], right = ids[random() % ids.size()];
    std::string text = texts[left] + texts[right];
    if (text.size() > 9 || !known.insert(text).second) continue;
    ids.push_back(static_cast<std::uint32_t>(texts.size()));
    merges.push_back({left, right, ids.back()});
    texts.push_back(std::move(text));
  }
  return merges;
}

std::string random_text(std::mt19937& random, std::size_t characters, bool broken) {
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    const std::string character = kCharacters[random() % kCharacters.size()];
    text += broken && random() % 8 == 0 ? character.substr(random() % character.size()) : character;
  }
  return text;
}

TEST(Joints, BytesMergeAsTheDefinitionSays) {
  std::mt19937 random(3);
  std::size_t merged = 0;
  for (int round = 0; round < 60; ++round) {
    ByteBpeConfig config;
    for (int b = 0; b < 256; ++b) config.vocabulary.emplace_back(1, static_cast<char>(b));
    std::vector<std::uint32_t> bytes;
    for (const std::string_view character : kCharacters)
      for (const char c : character) bytes.push_back(static_cast<unsigned char>(c));
    config.merges = random_merges(random, 1 + random() % 60, bytes, config.vocabulary);
    const ByteBpe bpe(config);
    for (int i = 0; i < 60; ++i) {
      const std::string text = random_text(random, 1 + random() % 40, i % 3 == 0);
      Ids ids, by_definition;
      bpe.encode_piece(text, ids);
      for (const char c : text) by_definition.push_back(static_cast<unsigned char>(c));
      by_definition = merged_by_definition(by_definition, config.merges);
      merged += text.size() - by_definition.size();
      ASSERT_EQ(ids, by_definition) << "round " << round << ": " << text;
    }
  }
  EXPECT_GT(merged, 10'000U) << "the test should merge something";
}

TEST(Joints, WholePiecesOfTheVocabularyAreNoPartsOfOthers) {
  // "xy" is a piece that no merge makes; 中 joins with nothing.
  ByteBpeConfig config;
  for (int b = 0; b < 256; ++b) config.vocabulary.emplace_back(1, static_cast<char>(b));
  config.vocabulary.insert(config.vocabulary.end(), {"xy", "ab"});
  config.merges = {{'a', 'b', 257}};
  config.whole_pieces_first = true;
  const ByteBpe bpe(config);
  for (int round = 0; round < 2; ++round) {
    Ids ids;
    bpe.encode_piece("xy", ids);
    bpe.encode_piece("xy中xyab", ids);
    EXPECT_EQ(ids, (Ids{256, 'x', 'y', 0xe4, 0xb8, 0xad, 'x', 'y', 257}));
  }
}

/// A model over characters, of which some are unknown.
struct CharModel {
  BpeFile file;
  std::vector<std::string> texts;
  std::map<std::string, std::int64_t> bytes;

  CharModel(std::mt19937& random, bool fallback, bool unknown, bool fuse) {
    std::vector<std::uint32_t> known;
    for (std::size_t i = 0; i < kCharacters.size(); ++i) {
      if (i % 4 == 3) continue;
      known.push_back(static_cast<std::uint32_t>(texts.size()));
      texts.emplace_back(kCharacters[i]);
    }
    file.merges = random_merges(random, 1 + random() % 25, known, texts);
    if (unknown) file.unknown = static_cast<std::uint32_t>(texts.size());
    if (unknown) texts.emplace_back("<unk>");
    constexpr std::string_view kHex = "0123456789ABCDEF";
    for (unsigned b = 0; fallback && b < 256; ++b) {
      bytes[std::string(1, static_cast<char>(static_cast<unsigned char>(b)))] = static_cast<std::int64_t>(texts.size());
      texts.push_back(str_cat("<0x", kHex[b >> 4], kHex[b & 15], ">"));
    }
    for (std::size_t id = 0; id < texts.size(); ++id) file.vocabulary.add(texts[id], static_cast<std::int64_t>(id));
    file.byte_fallback = fallback;
    file.fuse_unknown = fuse;
  }

  Ids by_definition(const std::vector<std::string>& characters) const {
    Ids ids;
    bool unknown_before = false;
    for (const std::string& character : characters) {
      const auto id = file.vocabulary.find(character);
      if (id) {
        ids.push_back(*id);
      } else if (file.byte_fallback) {
        for (const char c : character) ids.push_back(bytes.at(std::string(1, c)));
      } else if (file.unknown && !(file.fuse_unknown && unknown_before)) {
        ids.push_back(*file.unknown);
      }
      unknown_before = !id;
    }
    return merged_by_definition(ids, file.merges);
  }
};

TEST(Joints, CharactersMergeAsTheDefinitionSays) {
  std::mt19937 random(4);
  std::size_t merged = 0;
  for (int round = 0; round < 120; ++round) {
    const CharModel made(random, round % 4 == 0, round % 4 != 1, round % 4 == 2);
    const Unreachable unreachable(made.texts.size(), false);
    const auto model = make_char_bpe(made.file, unreachable);
    for (int i = 0; i < 40; ++i) {
      std::vector<std::string> characters;
      std::string text;
      for (std::size_t c = 0, count = 1 + random() % 40; c < count; ++c) {
        characters.emplace_back(kCharacters[random() % kCharacters.size()]);
        text += characters.back();
      }
      Ids ids;
      model->encode(text, ids);
      const Ids wanted = made.by_definition(characters);
      merged += characters.size() > wanted.size() ? characters.size() - wanted.size() : 0;
      ASSERT_EQ(ids, wanted) << "round " << round << ": " << text;
    }
  }
  EXPECT_GT(merged, 1'000U) << "the test should merge something";
}

TEST(Joints, PartsEndWhereNothingReachesOver) {
  Joints joints;
  joints.add("xa", "b");
  joints.add("中", "\xe4\xb8");    // the first bytes of 丮 and 中
  joints.add("\x98\x80", "é");     // the last bytes of 😀
  joints.add("\xf0\x9f", "\x98");  // within a character: of no importance
  const auto parts = [&](std::string_view text) {
    std::vector<std::string> all;
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      end = joints.part_end(text, begin);
      all.emplace_back(text.substr(begin, end - begin));
    }
    return all;
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(parts("abba"), (Parts{"ab", "b", "a"}));
  EXPECT_EQ(parts("中丮亭中中b"), (Parts{"中丮", "亭", "中中", "b"})) << "亭 is E4 BA AD";
  EXPECT_EQ(parts("😀é😐éé"), (Parts{"😀é", "😐", "é", "é"}));
  EXPECT_EQ(parts("b\xff"
                  "b\xe4\xb8z"),
            (Parts{"b\xff"
                   "b\xe4\xb8z"}));
}

}  // namespace
}  // namespace megatron::tokenizer
