#include "base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace megatron {
namespace {

TEST(ExactSum, EqualsLongArithmeticOnCancellingValues) {
  ExactSum sum;
  sum.add(1e300);
  sum.add(1.0);
  sum.add(-1e300);
  sum.add(0x1p-1074);
  EXPECT_EQ(sum.value(), 1.0);
  sum.add(-1.0);
  EXPECT_EQ(sum.value(), 0x1p-1074);
}

TEST(ExactSum, RoundsTiesToEven) {
  ExactSum sum;
  sum.add(0x1p53);
  sum.add(1.0);
  EXPECT_EQ(sum.value(), 0x1p53);
  sum.add(0x1p-200);
  EXPECT_EQ(sum.value(), 0x1p53 + 2.0);
  ExactSum negative;
  negative.add(-0x1p53);
  negative.add(-3.0);
  EXPECT_EQ(negative.value(), -(0x1p53 + 4.0));
}

TEST(ExactSum, DoesNotDependOnOrderOrCut) {
  std::mt19937_64 random(7);
  std::vector<double> values(2000);
  for (double& v : values)
    v = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), static_cast<int>(random() % 200) - 100);
  ExactSum whole;
  for (const double v : values) whole.add(v);
  std::shuffle(values.begin(), values.end(), random);
  ExactSum first, second;
  for (std::size_t i = 0; i < values.size(); ++i) (i % 3 == 0 ? first : second).add(values[i]);
  first.add(second);
  EXPECT_EQ(whole.value(), first.value());
  long double reference = 0;
  std::sort(values.begin(), values.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  for (const double v : values) reference += v;
  EXPECT_NEAR(whole.value() / static_cast<double>(reference), 1.0, 1e-12);
}

TEST(ExactSum, MergesThroughIntegerWords) {
  ExactSum a, b, merged;
  a.add(0.1);
  a.add(-7.25);
  b.add(1e-30);
  for (int i = 0; i < ExactSum::kWords; ++i)
    merged.words()[static_cast<std::size_t>(i)] =
        a.words()[static_cast<std::size_t>(i)] + b.words()[static_cast<std::size_t>(i)];
  ExactSum direct = a;
  direct.add(b);
  EXPECT_EQ(merged.value(), direct.value());
}

TEST(ExactSum, CarriesNanAndInfinity) {
  ExactSum sum;
  sum.add(std::numeric_limits<double>::infinity());
  EXPECT_EQ(sum.value(), std::numeric_limits<double>::infinity());
  sum.add(-std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(sum.value()));
}

}  // namespace
}  // namespace megatron
