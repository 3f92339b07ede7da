#include "data/witten_bell.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <string>

namespace megatron::data {
namespace {

/// The definition, counted anew for every question.
double by_definition(const std::string& trained, const std::string& history, int order, char next) {
  const double lower = order == 0 ? 1.0 / 256.0 : by_definition(trained, history, order - 1, next);
  if (static_cast<std::size_t>(order) > history.size()) return lower;
  const std::string context = history.substr(history.size() - static_cast<std::size_t>(order));
  double count = 0, joint = 0;
  std::set<char> types;
  for (std::size_t at = context.size(); at < trained.size(); ++at) {
    if (trained.compare(at - context.size(), context.size(), context) != 0) continue;
    ++count;
    joint += trained[at] == next ? 1 : 0;
    types.insert(trained[at]);
  }
  if (count == 0) return lower;
  const auto t = static_cast<double>(types.size());
  return (joint + t * lower) / (count + t);
}

std::string some_text() {
  std::string text;
  unsigned state = 12345;
  for (int i = 0; i < 400; ++i) {
    state = state * 1664525U + 1013904223U;
    text += static_cast<char>('a' + (state >> 28) % 5);
  }
  return text;
}

TEST(WittenBell, IsItsDefinition) {
  const std::string text = some_text();
  for (const int order : {0, 1, 2, 3}) {
    WittenBell model(order);
    model.train(text);
    for (const char* history : {"", "a", "ab", "abc", "ccccc", "zz", "azb"})
      for (const char next : {'a', 'b', 'e', 'z'})
        EXPECT_NEAR(model.probability(history, static_cast<unsigned char>(next)),
                    by_definition(text, history, order, next), 1e-15)
            << order << " '" << history << "' " << next;
  }
}

TEST(WittenBell, ProbabilitiesSumToOne) {
  WittenBell model(3);
  model.train(some_text());
  for (const char* history : {"", "a", "abc", "xyz", "aab"}) {
    double sum = 0;
    for (int b = 0; b < 256; ++b) sum += model.probability(history, static_cast<unsigned char>(b));
    EXPECT_NEAR(sum, 1.0, 1e-12) << history;
  }
}

TEST(WittenBell, SmallByHand) {
  // Trained on "aab": p0(a) = (2 + 2/256)/5; after "a" came a and b once each: p1(a|a) = (1 + 2·p0(a))/4.
  WittenBell model(1);
  model.train("aab");
  const double p0 = (2.0 + 2.0 / 256.0) / 5.0;
  EXPECT_DOUBLE_EQ(model.probability("", 'a'), p0);
  EXPECT_DOUBLE_EQ(model.probability("a", 'a'), (1.0 + 2.0 * p0) / 4.0);
  EXPECT_DOUBLE_EQ(model.probability("b", 'a'), p0);
}

TEST(WittenBell, ScoresTheRest) {
  const std::string text = some_text();
  const std::string trained = text.substr(0, 380);
  double bits = 0;
  for (std::size_t at = 380; at < text.size(); ++at)
    bits -= std::log2(by_definition(trained, text.substr(0, at), 3, text[at]));
  EXPECT_NEAR(witten_bell_bits_per_byte(text, 0.95, 3), bits / 20.0, 1e-12);
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(witten_bell_bits_per_byte(bytes.first(380), bytes.subspan(380)), witten_bell_bits_per_byte(text));
}

// The King James text of the Debian package, where it is installed.
TEST(WittenBell, KingJamesText) {
  std::FILE* pipe = ::popen("bible -f gen1:1-rev22:21 </dev/null 2>/dev/null", "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  char piece[1 << 16];
  for (std::size_t got; (got = std::fread(piece, 1, sizeof(piece), pipe)) > 0;) text.append(piece, got);
  ::pclose(pipe);
  if (text.size() != 4404412) GTEST_SKIP() << "no reference data: the package bible-kjv";
  EXPECT_NEAR(witten_bell_bits_per_byte(text), 2.44, 0.01);
}

}  // namespace
}  // namespace megatron::data
