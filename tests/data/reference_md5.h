// MD5 (RFC 1321), to compare arrays with the digests of reference records.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace megatron::testing {

inline void md5_block(const unsigned char* block, std::array<std::uint32_t, 4>& state) {
  constexpr std::array<std::array<int, 4>, 4> kShifts = {
      {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};
  std::array<std::uint32_t, 16> words;
  std::memcpy(words.data(), block, 64);
  auto [a, b, c, d] = state;
  for (std::uint32_t i = 0; i < 64; ++i) {
    std::uint32_t f, g;
    switch (i / 16) {
      case 0:
        f = (b & c) | (~b & d), g = i;
        break;
      case 1:
        f = (d & b) | (~d & c), g = 5 * i + 1;
        break;
      case 2:
        f = b ^ c ^ d, g = 3 * i + 5;
        break;
      default:
        f = c ^ (b | ~d), g = 7 * i;
        break;
    }
    const auto constant =
        static_cast<std::uint32_t>(std::floor(std::fabs(std::sin(static_cast<double>(i + 1))) * 4294967296.0));
    const std::uint32_t sum = a + f + constant + words[g % 16];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kShifts[i / 16][i % 4]);
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d;
}

inline std::string md5(std::span<const std::byte> bytes) {
  std::array<std::uint32_t, 4> state = {0x67452301U, 0xefcdab89U, 0x98badcfeU, 0x10325476U};
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t at = 0;
  for (; at + 64 <= bytes.size(); at += 64) md5_block(data + at, state);
  std::vector<unsigned char> tail(data + at, data + bytes.size());
  tail.push_back(0x80);
  while (tail.size() % 64 != 56) tail.push_back(0);
  const std::uint64_t bits = bytes.size() * 8;
  for (int i = 0; i < 8; ++i) tail.push_back(static_cast<unsigned char>(bits >> (8 * i)));
  for (at = 0; at < tail.size(); at += 64) md5_block(tail.data() + at, state);
  std::string text;
  for (const std::uint32_t word : state)
    for (int i = 0; i < 4; ++i) {
      const unsigned value = (word >> (8 * i)) & 0xffU;
      text += "0123456789abcdef"[value >> 4];
      text += "0123456789abcdef"[value & 15];
    }
  return text;
}

}  // namespace megatron::testing
