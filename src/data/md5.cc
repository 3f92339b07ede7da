#include "data/md5.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace megatron::data {
namespace {

constexpr std::array<std::array<int, 4>, 4> kShifts = {
    {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};

/// ⌊2³²·|sin(i + 1)|⌋, the RFC's table.
const std::array<std::uint32_t, 64>& constants() {
  static const auto kTable = [] {
    std::array<std::uint32_t, 64> table{};
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<std::uint32_t>(std::fabs(std::sin(static_cast<double>(i + 1))) * 4294967296.0);
    return table;
  }();
  return kTable;
}

}  // namespace

void Md5::block(const std::byte* bytes) {
  std::array<std::uint32_t, 16> words;
  std::memcpy(words.data(), bytes, 64);
  std::uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3];
  const auto& table = constants();
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t round = i / 16;
    const std::uint32_t mixed = round == 0   ? (b & c) | (~b & d)
                                : round == 1 ? (d & b) | (~d & c)
                                : round == 2 ? b ^ c ^ d
                                             : c ^ (b | ~d);
    const std::size_t word = round == 0   ? i
                             : round == 1 ? (5 * i + 1) % 16
                             : round == 2 ? (3 * i + 5) % 16
                                          : 7 * i % 16;
    const std::uint32_t sum = a + mixed + table[i] + words[word];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kShifts[round][i % 4]);
  }
  state_[0] += a, state_[1] += b, state_[2] += c, state_[3] += d;
}

void Md5::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t held = size_ % 64;
    if (held == 0 && bytes.size() >= 64) {
      block(bytes.data());
      size_ += 64;
      bytes = bytes.subspan(64);
      continue;
    }
    const std::size_t part = std::min(bytes.size(), 64 - held);
    std::copy_n(bytes.begin(), part, rest_.begin() + static_cast<std::ptrdiff_t>(held));
    size_ += part;
    if (size_ % 64 == 0) block(rest_.data());
    bytes = bytes.subspan(part);
  }
}

std::string Md5::finish() {
  const std::uint64_t bits = size_ * 8;
  const std::byte mark{0x80}, zero{0};
  add({&mark, 1});
  while (size_ % 64 != 56) add({&zero, 1});
  add(std::as_bytes(std::span<const std::uint64_t, 1>(&bits, 1)));
  std::string text;
  for (const std::uint32_t word : state_)
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t value = (word >> (8 * i)) & 0xffU;
      text += "0123456789abcdef"[value >> 4];
      text += "0123456789abcdef"[value & 15];
    }
  return text;
}

std::string md5(std::string_view text) {
  Md5 sum;
  sum.add(std::as_bytes(std::span(text)));
  return sum.finish();
}

}  // namespace megatron::data
