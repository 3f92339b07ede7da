#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace megatron {
namespace {

float float_of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

// The value of a 16-bit pattern from its fields alone; NaN for NaN.
double value_by_definition(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1),
            fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

template <typename T>
struct Format;
template <>
struct Format<BFloat16> {
  static constexpr int kExponentBits = 8;
};
template <>
struct Format<Float16> {
  static constexpr int kExponentBits = 5;
};

template <typename T>
class Float16Types : public ::testing::Test {};
using Types = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(Float16Types, Types);

TYPED_TEST(Float16Types, EveryPatternHasTheValueOfItsFieldsAndComesBack) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const double expected = value_by_definition(bits, Format<TypeParam>::kExponentBits);
    const float value = TypeParam::from_bits(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << pattern;
      const std::uint16_t quiet = Format<TypeParam>::kExponentBits == 8 ? 0x0040 : 0x0200;
      ASSERT_EQ(TypeParam(value).bits, bits | quiet) << pattern;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << pattern;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << pattern;
    ASSERT_EQ(TypeParam(value).bits, bits) << pattern;
  }
}

// Between two neighbours: below the middle the lower one, above it the upper one, in the middle the even one.
TYPED_TEST(Float16Types, RoundsToNearestEvenBetweenAllNeighbours) {
  const std::uint16_t infinity = TypeParam(std::numeric_limits<float>::infinity()).bits;
  for (std::uint16_t lower = 0; lower < infinity; ++lower) {
    const auto upper = static_cast<std::uint16_t>(lower + 1);
    const double low = value_by_definition(lower, Format<TypeParam>::kExponentBits);
    // Behind the largest finite value the next one would be a power of two.
    const double high = upper == infinity ? 2 * low - value_by_definition(static_cast<std::uint16_t>(lower - 1),
                                                                          Format<TypeParam>::kExponentBits)
                                          : value_by_definition(upper, Format<TypeParam>::kExponentBits);
    const auto middle = static_cast<float>(0.5 * (low + high));
    ASSERT_EQ(static_cast<double>(middle), 0.5 * (low + high));
    const std::uint16_t even = (lower & 1) == 0 ? lower : upper;
    ASSERT_EQ(TypeParam(middle).bits, even) << lower;
    ASSERT_EQ(TypeParam(-middle).bits, even | 0x8000) << lower;
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0F)).bits, lower) << lower;
    ASSERT_EQ(TypeParam(std::nextafter(middle, std::numeric_limits<float>::infinity())).bits, upper) << lower;
  }
}

// Facts of numpy.float16 and torch.bfloat16: (bits of the float, bits of the 16-bit type).
TEST(Float16, KnownConversions) {
  const std::vector<std::pair<float, std::uint16_t>> half = {
      {1.0F, 0x3C00},       {-2.0F, 0xC000},           {65504.0F, 0x7BFF},
      {65519.996F, 0x7BFF}, {65520.0F, 0x7C00},        {3.14159274F, 0x4248},
      {0.1F, 0x2E66},       {5.96046448e-08F, 0x1},    {2.98023224e-08F, 0},
      {2.98023259e-08F, 1}, {6.10351562e-05F, 0x0400}, {6.09755516e-05F, 0x03FF},
      {-1e10F, 0xFC00},     {-0.0F, 0x8000},           {1e-45F, 0}};
  for (const auto& [value, bits] : half) EXPECT_EQ(Float16(value).bits, bits) << value;
  const std::vector<std::pair<float, std::uint16_t>> brain = {{1.0F, 0x3F80},
                                                              {3.14159274F, 0x4049},
                                                              {0.1F, 0x3DCD},
                                                              {1.00390625F, 0x3F80},
                                                              {1.01171875F, 0x3F82},
                                                              {3.40282347e+38F, 0x7F80},
                                                              {3.38953139e+38F, 0x7F7F},
                                                              {9.18354962e-41F, 1},
                                                              {4.5917748e-41F, 0},
                                                              {-0.0F, 0x8000}};
  for (const auto& [value, bits] : brain) EXPECT_EQ(BFloat16(value).bits, bits) << value;
}

TEST(Float16, NaNStaysQuietWithItsSign) {
  // The payload would vanish with the lower bits: only the quiet bit is left.
  EXPECT_EQ(BFloat16(float_of_bits(0x7F800001)).bits, 0x7FC0);
  EXPECT_EQ(BFloat16(float_of_bits(0xFFFFFFFF)).bits, 0xFFFF);
  EXPECT_EQ(Float16(float_of_bits(0x7F800001)).bits, 0x7E00);
  EXPECT_EQ(Float16(float_of_bits(0xFFFFFFFF)).bits, 0xFFFF);
  EXPECT_EQ(bits_of(Float16::from_bits(0xFE00)), 0xFFC00000U);
}

}  // namespace
}  // namespace megatron
