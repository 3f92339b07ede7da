#include "data/mock_dataset.h"

#include <array>
#include <bit>

#include "base/check.h"

namespace megatron::data {
namespace {

constexpr std::int64_t kNumSequences = 100000;
constexpr std::uint32_t kLongest = 4095;

/// numpy's SeedSequence(0).generate_state(4, uint64): entropy words are all 0.
std::array<std::uint64_t, 4> seed_words() {
  std::uint32_t a = 0x43b0d7e5U;
  const auto hash = [&a](std::uint32_t value) {
    value ^= a;
    a *= 0x931e8875U;
    value *= a;
    return value ^ (value >> 16);
  };
  std::array<std::uint32_t, 4> pool{};
  for (auto& word : pool) word = hash(0);
  for (std::size_t s = 0; s < 4; ++s) {
    for (std::size_t d = 0; d < 4; ++d) {
      if (d == s) continue;
      const std::uint32_t mixed = pool[d] * 0xca01f9ddU - hash(pool[s]) * 0x4973f715U;
      pool[d] = mixed ^ (mixed >> 16);
    }
  }
  std::array<std::uint64_t, 4> words{};
  std::uint32_t b = 0x8b51f9ddU;
  for (std::size_t i = 0; i < 8; ++i) {
    std::uint32_t value = pool[i % 4] ^ b;
    b *= 0x58f38dedU;
    value *= b;
    value ^= value >> 16;
    words[i / 2] |= static_cast<std::uint64_t>(value) << (32 * (i % 2));
  }
  return words;
}

/// High and low half of a 64×64-bit product.
std::array<std::uint64_t, 2> multiply(std::uint64_t x, std::uint64_t y) {
  const std::uint64_t x0 = x & 0xffffffffULL, x1 = x >> 32, y0 = y & 0xffffffffULL, y1 = y >> 32;
  const std::uint64_t low = x0 * y0, cross = x1 * y0 + (low >> 32), cross2 = x0 * y1 + (cross & 0xffffffffULL);
  return {x1 * y1 + (cross >> 32) + (cross2 >> 32), (cross2 << 32) | (low & 0xffffffffULL)};
}

}  // namespace

NumpyDefaultRng::NumpyDefaultRng() {
  const auto words = seed_words();
  increment_high_ = (words[2] << 1) | (words[3] >> 63);
  increment_low_ = (words[3] << 1) | 1;
  step();
  state_low_ += words[1];
  state_high_ += words[0] + (state_low_ < words[1] ? 1 : 0);
  step();
}

void NumpyDefaultRng::step() {
  constexpr std::uint64_t kHigh = 2549297995355413924ULL, kLow = 4865540595714422341ULL;
  const auto [carry, low] = multiply(state_low_, kLow);
  const std::uint64_t high = carry + state_high_ * kLow + state_low_ * kHigh;
  state_low_ = low + increment_low_;
  state_high_ = high + increment_high_ + (state_low_ < low ? 1 : 0);
}

std::uint64_t NumpyDefaultRng::next64() {
  step();
  return std::rotr(state_high_ ^ state_low_, static_cast<int>(state_high_ >> 58));
}

std::uint32_t NumpyDefaultRng::next32() {
  has_half_ = !has_half_;
  if (!has_half_) return half_;
  const std::uint64_t word = next64();
  half_ = static_cast<std::uint32_t>(word >> 32);
  return static_cast<std::uint32_t>(word);
}

std::uint32_t NumpyDefaultRng::bounded(std::uint32_t n) {
  const std::uint32_t threshold = (0U - n) % n;
  std::uint64_t product = 0;
  do {
    product = static_cast<std::uint64_t>(next32()) * n;
  } while (static_cast<std::uint32_t>(product) < threshold);
  return static_cast<std::uint32_t>(product >> 32);
}

MockSource::MockSource(std::int64_t vocab_size, std::int64_t eod) : vocab_size_(vocab_size), eod_(eod) {
  if (vocab_size < 1 || eod < 0 || eod >= vocab_size)
    throw ConfigError(str_cat("--mock-data: end-of-document id ", eod, " is outside a vocabulary of ", vocab_size));
  NumpyDefaultRng rng;
  lengths_.resize(kNumSequences);
  for (auto& length : lengths_) length = static_cast<std::int32_t>(1 + rng.bounded(kLongest));
}

std::int64_t MockSource::length(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < num_sequences(), "no mock sequence ", index);
  return lengths_[static_cast<std::size_t>(index)];
}

void MockSource::read(std::int64_t index, std::int64_t offset, std::int64_t count, std::int64_t* out) const {
  const std::int64_t tokens = length(index);
  MEGATRON_CHECK(offset >= 0 && count >= 0 && offset + count <= tokens, "mock sequence ", index, " has ", tokens,
                 " tokens");
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = offset + i;
    out[i] = at == tokens - 1 ? eod_ : (at + 1) % vocab_size_;
  }
}

}  // namespace megatron::data
