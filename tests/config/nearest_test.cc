#include "config/nearest.h"

#include <gtest/gtest.h>

namespace megatron::config {
namespace {

TEST(Nearest, Names) {
  const std::vector<std::string> known = {"--hidden-size", "--hidden-dropout", "--seq-length"};
  EXPECT_EQ(nearest_name("--hiden-size", known), "--hidden-size");
  EXPECT_EQ(nearest_name("--hidden_size", known), "--hidden-size");
  EXPECT_EQ(nearest_name("--completely-different", known), "");
}

TEST(Nearest, Numbers) {
  EXPECT_EQ(nearest_multiples(10, 6), "6, 12");
  EXPECT_EQ(nearest_multiples(2, 4), "4");
  EXPECT_EQ(nearest_divisors(4, 6), "3, 6");
  EXPECT_EQ(nearest_divisors(0, 6), "1");
  EXPECT_EQ(nearest_divisors(9, 6), "6");
}

}  // namespace
}  // namespace megatron::config
