#include "config/text_value.h"

#include <gtest/gtest.h>

namespace megatron::config {
namespace {

TEST(TextValue, IntegersAsPythonReadsThem) {
  EXPECT_EQ(parse_integer("220_000_000"), 220000000);
  EXPECT_EQ(parse_integer("010"), 10);
  EXPECT_EQ(parse_integer("-3"), -3);
  EXPECT_EQ(parse_integer("+3"), 3);
  for (const char* bad : {"", "1.0", "1e3", "_1", "1_", "1__0", "0x10", "12a", "+-3", "99999999999999999999"})
    EXPECT_FALSE(parse_integer(bad)) << bad;
}

TEST(TextValue, RealsAsPythonReadsThem) {
  EXPECT_EQ(parse_real("1e-4"), 1e-4);
  EXPECT_EQ(parse_real(".5"), 0.5);
  EXPECT_EQ(parse_real("1."), 1.0);
  EXPECT_EQ(parse_real("1_000.5"), 1000.5);
  for (const char* bad : {"", "abc", "1e", "nan", "inf", "1,5"}) EXPECT_FALSE(parse_real(bad)) << bad;
}

TEST(TextValue, Truth) {
  EXPECT_EQ(parse_truth("True"), true);
  EXPECT_EQ(parse_truth("off"), false);
  EXPECT_FALSE(parse_truth("1"));
}

TEST(TextValue, RealsPrintShortAndReadBack) {
  EXPECT_EQ(format_real(0.1), "0.1");
  for (double value : {1e-5, 3.9e-7, 1.0 / 3, 220e6}) EXPECT_EQ(parse_real(format_real(value)), value);
}

}  // namespace
}  // namespace megatron::config
