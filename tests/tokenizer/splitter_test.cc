#include "tokenizer/splitter.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "base/check.h"

namespace megatron::tokenizer {
namespace {

using Texts = std::vector<std::string>;

Texts cut(const Splitter& splitter, std::string_view text) {
  Texts parts;
  for (const Piece& piece : splitter.split(text)) parts.emplace_back(text.substr(piece.begin, piece.end - piece.begin));
  return parts;
}

Texts cut_by(std::string_view name, std::string_view text) {
  return cut(*make_splitter(named_pattern(name), SplitBehavior::isolated), text);
}

void append_utf8(std::uint32_t c, std::string& text) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
  } else if (c < 0x10000) {
    text += {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3f)),
             static_cast<char>(0x80 | (c & 0x3f))};
  } else {
    text += {static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3f)),
             static_cast<char>(0x80 | (c >> 6 & 0x3f)), static_cast<char>(0x80 | (c & 0x3f))};
  }
}

/// Characters of every class, many of those whose order matters.
std::string random_text(std::mt19937& random) {
  constexpr std::string_view kFrequent[] = {
      "'",      "'s",     "'LL",    "'ve",    "'\u017f", " ",          "  ",     "\n",     "\r\n",   "\t",     "/",
      "!",      "1",      "23",     "a",      "B",       "Ab",         "\u00e9", "\u01c5", "\u0300", "\u4e2d", "\u02b0",
      "\u00a0", "\u3000", "\u2028", "\u0660", "\u2167",  "\U0001f600", "\u200d", "_",      "\u0085"};
  constexpr std::array<std::array<std::uint32_t, 2>, 12> kRanges = {{{0x00, 0x7f},
                                                                     {0x80, 0x24f},
                                                                     {0x370, 0x377},
                                                                     {0x400, 0x52f},
                                                                     {0x610, 0x6ff},
                                                                     {0x904, 0x94d},
                                                                     {0x1c90, 0x1cba},
                                                                     {0x2000, 0x206f},
                                                                     {0x3041, 0x3096},
                                                                     {0x4e00, 0x9fff},
                                                                     {0xac00, 0xd7a3},
                                                                     {0x1d400, 0x1d7ff}}};
  std::string text;
  for (std::size_t n = random() % 24; n > 0; --n) {
    if (random() % 3 != 0) {
      text += kFrequent[random() % std::size(kFrequent)];
    } else {
      const auto& range = kRanges[random() % kRanges.size()];
      append_utf8(range[0] + static_cast<std::uint32_t>(random() % (range[1] - range[0] + 1)), text);
    }
  }
  return text;
}

TEST(KnownPatterns, EqualTheRegularExpression) {
  std::mt19937 random(3);
  for (const char* name : {"gpt2", "r50k", "cl100k", "o200k", "llama3", "qwen2", "v1", "v2"}) {
    const std::string regex(named_pattern(name));
    ASSERT_TRUE(is_known_pattern(regex)) << name;
    // In brackets the expression is not known, and PCRE2 does the work.
    const std::string bracketed = "(?:" + regex + ")";
    ASSERT_FALSE(is_known_pattern(bracketed));
    const auto known = make_splitter(regex, SplitBehavior::isolated);
    const auto reference = make_splitter(bracketed, SplitBehavior::isolated);
    for (int i = 0; i < 4000; ++i) {
      const std::string text = random_text(random);
      ASSERT_EQ(cut(*known, text), cut(*reference, text)) << name << ": " << text;
    }
  }
}

TEST(KnownPatterns, CutKnownTexts) {
  EXPECT_EQ(cut_by("gpt2", "I've  12345\n\n"), (Texts{"I", "'ve", " ", " 12345", "\n\n"}));
  EXPECT_EQ(cut_by("cl100k", "I'VE  12345\n\n"), (Texts{"I", "'VE", " ", " ", "123", "45", "\n\n"}));
  EXPECT_EQ(cut_by("qwen2", "x=12"), (Texts{"x", "=", "1", "2"}));
  EXPECT_EQ(cut_by("o200k", "HelloWorld's ABCdef/\n"), (Texts{"Hello", "World's", " ABCdef", "/\n"}));
  EXPECT_EQ(cut_by("cl100k", "a\n  "), (Texts{"a", "\n  "}));
  EXPECT_EQ(cut_by("llama3", "a\n  "), (Texts{"a", "\n", "  "}));
  EXPECT_EQ(cut_by("gpt2", ""), Texts{});
}

TEST(KnownPatterns, BytesThatAreNoCharactersArePieces) {
  for (const char* name : {"gpt2", "cl100k", "o200k"}) {
    const std::string text = "a\xff\xc3 \xe4\xb8 b\xf0\x9f";
    std::string joined;
    for (const std::string& part : cut_by(name, text)) joined += part;
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(KnownPatterns, LongTextsTakeLinearTime) {
  for (const char* name : {"gpt2", "cl100k", "o200k", "qwen2"}) {
    EXPECT_EQ(cut_by(name, std::string(5'000'000, 'a')).size(), 1U);
    EXPECT_EQ(cut_by(name, std::string(1'000'000, ' ')).size(), 1U);
    // Grown in place: gcc 12 takes the sum of a long string and a literal for an overflow.
    std::string blanks(1'000'000, ' '), lines(1'000'000, '\n');
    blanks += "x";
    lines += "  x";
    EXPECT_EQ(cut_by(name, blanks).size(), 2U);
    EXPECT_EQ(cut_by(name, lines).size(), name[0] == 'g' ? 2U : 3U);
  }
}

TEST(Behaviors, AreHuggingFaces) {
  // The examples of HuggingFace's documentation of SplitDelimiterBehavior.
  const std::string text = "the-final--countdown";
  const auto with = [&](SplitBehavior behavior, bool invert = false) {
    const Texts literal = cut(*make_literal_splitter("-", behavior, invert), text);
    EXPECT_EQ(cut(*make_splitter("-", behavior, invert), text), literal);
    return literal;
  };
  EXPECT_EQ(with(SplitBehavior::removed), (Texts{"the", "final", "countdown"}));
  EXPECT_EQ(with(SplitBehavior::isolated), (Texts{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(with(SplitBehavior::merged_with_previous), (Texts{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(with(SplitBehavior::merged_with_next), (Texts{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(with(SplitBehavior::contiguous), (Texts{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(with(SplitBehavior::removed, true), (Texts{"-", "-", "-"}));
  EXPECT_EQ(with(SplitBehavior::isolated, true), (Texts{"the", "-", "final", "-", "-", "countdown"}));
}

TEST(Behaviors, APieceAtATimeIsTheSame) {
  std::mt19937 random(5);
  for (const auto behavior : {SplitBehavior::removed, SplitBehavior::isolated, SplitBehavior::merged_with_previous,
                              SplitBehavior::merged_with_next, SplitBehavior::contiguous})
    for (const bool invert : {false, true}) {
      const auto splitter = make_splitter("-+?|x", behavior, invert);
      for (int i = 0; i < 200; ++i) {
        std::string text(random() % 12, 'a');
        for (char& c : text) c = "a-x"[random() % 3];
        std::vector<Piece> all;
        std::array<Piece, 1> one;
        std::size_t at = 0;
        while (splitter->next(text, at, one) == 1) all.push_back(one[0]);
        ASSERT_EQ(all, splitter->split(text)) << text;
      }
    }
}

TEST(Regex, HasOnigurumasClasses) {
  const auto matches = [](const char* regex, std::string_view text) {
    return cut(*make_splitter(regex, SplitBehavior::removed, /*invert=*/true), text);
  };
  EXPECT_EQ(matches("\\s", "a\u0085b\u180ec\u3000"), (Texts{"\u0085", "\u3000"}));
  EXPECT_EQ(matches("[\\s]", "\u180e "), (Texts{" "}));
  EXPECT_EQ(matches("\\w+", "a\u0301b_1 \u203f-"), (Texts{"a\u0301b_1", "\u203f"}));
  EXPECT_EQ(matches("\\h+", "xFf0g"), (Texts{"Ff0"}));
  EXPECT_EQ(matches("\\p{Han}+", "\u4e2d\u3001\u3042"), (Texts{"\u4e2d"}));
  EXPECT_EQ(matches("(?i:'s)", "'S"), (Texts{"'S"}));
  EXPECT_EQ(matches("[]a]+", "]a"), (Texts{"]a"}));
}

TEST(Regex, RefusesWhatItDoesNotKnow) {
  const auto error_of = [](const char* regex) -> std::string {
    try {
      make_splitter(regex, SplitBehavior::isolated);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of("a(b").find("the regular expression a(b: at character 3"), std::string::npos);
  EXPECT_NE(error_of("[a&&b]").find("an intersection of sets"), std::string::npos);
  EXPECT_NE(error_of("[a[bc]]").find("a set inside a set"), std::string::npos);
  EXPECT_NE(error_of("[a\\W]").find("an opposite inside []"), std::string::npos);
}

TEST(WholeSplitter, GivesOnePiece) {
  EXPECT_EQ(cut(*make_whole_splitter(), "a b"), Texts{"a b"});
  EXPECT_EQ(cut(*make_whole_splitter(), ""), Texts{});
}

}  // namespace
}  // namespace megatron::tokenizer
