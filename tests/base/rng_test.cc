#include "base/rng.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

// Known answers of the authors' Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0}, {0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, KeysDifferBySeedPurposeAndLayer) {
  const PhiloxKey key = make_philox_key(1234, RandomPurpose::hidden_dropout, 3);
  EXPECT_NE(key, make_philox_key(1235, RandomPurpose::hidden_dropout, 3));
  EXPECT_NE(key, make_philox_key(1234, RandomPurpose::attention_dropout, 3));
  EXPECT_NE(key, make_philox_key(1234, RandomPurpose::hidden_dropout, 4));
}

}  // namespace
}  // namespace megatron
