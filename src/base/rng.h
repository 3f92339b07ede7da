// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// Randomness is a function of (seed, purpose, layer) and a logical position, never a state, so that no result depends
// on the layout, the micro-batch size or the order of work.
#pragma once

#include <array>
#include <cstdint>

namespace megatron {

/// What a stream of random numbers is for; a part of its key.
enum class RandomPurpose : std::uint32_t {
  initialization = 1,
  hidden_dropout = 2,
  attention_dropout = 3,
  embedding_dropout = 4,
  sampling = 5,
  mock_data = 6,
  test = 7,
};

struct PhiloxKey {
  std::uint32_t k0, k1;
  bool operator==(const PhiloxKey&) const = default;
};

/// Key of the stream (seed, purpose, layer): a mix of the three (splitmix64 finaliser, applied twice).
PhiloxKey make_philox_key(std::uint64_t seed, RandomPurpose purpose, std::uint64_t layer);

/// Ten rounds of Philox4x32; four independent uniform 32-bit words per counter value.
constexpr std::array<std::uint32_t, 4> philox4x32(PhiloxKey key, std::array<std::uint32_t, 4> counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key.k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key.k1, static_cast<std::uint32_t>(p0)};
    key.k0 += 0x9E3779B9;
    key.k1 += 0xBB67AE85;
  }
  return counter;
}

/// Uniform in [0, 1) with 24 random bits.
constexpr float uniform_from_bits(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

}  // namespace megatron
