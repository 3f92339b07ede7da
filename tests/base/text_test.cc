// Helpers on text: cutting blanks, joining, distances.
#include "base/text.h"

#include <gtest/gtest.h>

#include "base/median.h"

namespace megatron {
namespace {

TEST(Text, TrimCutsBothEnds) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim("a"), "a");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, Joined) {
  EXPECT_EQ(joined({}, ", "), "");
  EXPECT_EQ(joined({"a"}, ", "), "a");
  EXPECT_EQ(joined({"a", "b", ""}, ", "), "a, b, ");
}

TEST(Text, EditDistanceIsLevenshteins) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2U);
  EXPECT_EQ(edit_distance("abc", "abc"), 0U);
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(median({}), 0.0);
  EXPECT_EQ(median({3.0}), 3.0);
  EXPECT_EQ(median({5.0, 1.0, 3.0}), 3.0);
  EXPECT_EQ(median({4.0, 1.0, 3.0, 100.0}), 3.5);
}

TEST(TakeLine, LeavesTheRest) {
  std::string_view text = "a\r\n\nb\rc\r\nlast";
  std::vector<std::string> lines;
  while (!text.empty()) lines.emplace_back(take_line(text));
  EXPECT_EQ(lines, (std::vector<std::string>{"a", "", "b\rc", "last"}));
}

}  // namespace
}  // namespace megatron
