#include "tokenizer/base64.h"

#include <gtest/gtest.h>

namespace megatron::tokenizer {
namespace {

TEST(Base64, TheVectorsOfTheStandard) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"Zg==", "f"},
                                                         {"Zm8=", "fo"},
                                                         {"Zm9v", "foo"},
                                                         {"Zm9vYg==", "foob"},
                                                         {"Zm9vYmE=", "fooba"},
                                                         {"Zm9vYmFy", "foobar"}};
  for (const auto& [text, bytes] : vectors) EXPECT_EQ(from_base64(text), bytes) << text;
  EXPECT_EQ(from_base64("+/+/"), "\xfb\xff\xbf");
}

TEST(Base64, NamesTheFirstCharacterThatIsWrong) {
  const std::pair<const char*, std::size_t> wrong[] = {
      {"Zm9*", 3}, {"Z=9v", 1}, {"Zm9vYg=", 7}, {"Zg", 2}, {"====", 0}};
  for (const auto& [text, place] : wrong) {
    std::size_t bad = 99;
    EXPECT_EQ(from_base64(text, &bad), std::nullopt) << text;
    EXPECT_EQ(bad, place) << text;
  }
}

}  // namespace
}  // namespace megatron::tokenizer
