#include "infer/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/check.h"

namespace megatron::infer {
namespace {

// Likelihoods 0.5, 0.3, 0.15, 0.05.
std::vector<float> logits() { return {std::log(0.3F), std::log(0.5F), std::log(0.05F), std::log(0.15F)}; }

std::map<std::int64_t, double> shares(const SamplingOptions& options, std::int64_t draws = 20000) {
  std::map<std::int64_t, double> share;
  for (std::int64_t i = 0; i < draws; ++i)
    share[sample_token(logits(), options, i)] += 1.0 / static_cast<double>(draws);
  return share;
}

TEST(Sampling, SharesAreTheSoftmaxOfTheLogits) {
  const auto share = shares({});
  EXPECT_NEAR(share.at(0), 0.3, 0.015);
  EXPECT_NEAR(share.at(1), 0.5, 0.015);
  EXPECT_NEAR(share.at(2), 0.05, 0.01);
  EXPECT_NEAR(share.at(3), 0.15, 0.015);
}

TEST(Sampling, TemperatureSharpens) {
  const auto share = shares({.temperature = 0.5});
  const double total = 0.25 + 0.09 + 0.0225 + 0.0025;
  EXPECT_NEAR(share.at(1), 0.25 / total, 0.015);
  EXPECT_NEAR(share.at(0), 0.09 / total, 0.015);
}

TEST(Sampling, TopKKeepsTheBestK) {
  const auto share = shares({.top_k = 2});
  EXPECT_EQ(share.size(), 2U);
  EXPECT_NEAR(share.at(1), 0.5 / 0.8, 0.015);
}

TEST(Sampling, TopPKeepsTheSmallestSetAbove) {
  // 0.5 + 0.3 = 0.8 exceeds 0.7; the token that passes the limit is kept.
  EXPECT_EQ(shares({.top_p = 0.7}).size(), 2U);
  EXPECT_EQ(shares({.top_p = 0.85}).size(), 3U);
  EXPECT_EQ(shares({.top_p = 0.2}).size(), 1U);
}

TEST(Sampling, GreedyTakesTheLowestIdAmongEquals) {
  const std::vector<float> flat(37, -1.0F);
  EXPECT_EQ(sample_token(flat, {.temperature = 0.0}, 5), 0);
  EXPECT_EQ(sample_token(logits(), {.temperature = 0.0}, 0), 1);
  EXPECT_EQ(sample_token(logits(), {.temperature = 2.0, .top_k = 1}, 0), 1);
}

TEST(Sampling, IsAFunctionOfSeedAndPosition) {
  const SamplingOptions a{.seed = 1}, b{.seed = 2};
  int differ = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(sample_token(logits(), a, i), sample_token(logits(), a, i));
    differ += sample_token(logits(), a, i) != sample_token(logits(), b, i) ? 1 : 0;
  }
  EXPECT_GT(differ, 20);
}

TEST(Sampling, BadOptionsAreRefusedByName) {
  const auto refusal = [](const SamplingOptions& options) -> std::string {
    try {
      check_sampling(options, 37);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({.temperature = -1.0}).find("--temperature -1"), std::string::npos);
  EXPECT_NE(refusal({.top_k = 38}).find("--top-k 38"), std::string::npos);
  EXPECT_NE(refusal({.top_p = 1.5}).find("--top-p 1.5"), std::string::npos);
  const std::string both = refusal({.top_k = 3, .top_p = 0.5});
  EXPECT_NE(both.find("--top-k 3"), std::string::npos);
  EXPECT_NE(both.find("--top-p 0.5"), std::string::npos);
}

TEST(Sampling, ALogitThatIsNotANumberIsAnError) {
  try {
    sample_token(std::vector<float>{0.0F, NAN}, {}, 3);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the logit of token 1 at position 3 is not a number");
  }
}

}  // namespace
}  // namespace megatron::infer
