#include "base/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace megatron {

namespace {
constexpr int kNanWord = ExactSum::kLimbs;
constexpr int kPlusInfWord = ExactSum::kLimbs + 1;
constexpr int kMinusInfWord = ExactSum::kLimbs + 2;
constexpr std::int64_t kMaxPending = std::int64_t{1} << 29;

// Propagates carries so that every limb but the top one lies in [0, 2^32).
void carry(std::int64_t* words) {
  std::int64_t c = 0;
  for (int i = 0; i < ExactSum::kLimbs - 1; ++i) {
    const std::int64_t v = words[i] + c;
    words[i] = v & 0xFFFFFFFF;
    c = v >> 32;
  }
  words[ExactSum::kLimbs - 1] += c;
}
}  // namespace

void ExactSum::normalize() {
  carry(words_.data());
  pending_ = 0;
}

void ExactSum::add(double value) {
  if (value == 0) return;
  if (!std::isfinite(value)) {
    const int word = std::isnan(value) ? kNanWord : value > 0 ? kPlusInfWord : kMinusInfWord;
    ++words_[static_cast<std::size_t>(word)];
    return;
  }
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int biased = static_cast<int>((bits >> 52) & 0x7FF);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  if (biased != 0) mantissa |= std::uint64_t{1} << 52;
  const int position = biased == 0 ? 0 : biased - 1;  // weight of the lowest mantissa bit, in bits above 2^-1074
  const auto limb = static_cast<std::size_t>(position / 32);
  const unsigned __int128 shifted = static_cast<unsigned __int128>(mantissa) << (position % 32);
  const std::int64_t sign = (bits >> 63) != 0 ? -1 : 1;
  words_[limb] += sign * static_cast<std::int64_t>(static_cast<std::uint64_t>(shifted) & 0xFFFFFFFF);
  words_[limb + 1] += sign * static_cast<std::int64_t>(static_cast<std::uint64_t>(shifted >> 32) & 0xFFFFFFFF);
  words_[limb + 2] += sign * static_cast<std::int64_t>(static_cast<std::uint64_t>(shifted >> 64));
  if (++pending_ >= kMaxPending) normalize();
}

void ExactSum::add(const ExactSum& other) {
  normalize();
  ExactSum copy = other;
  copy.normalize();
  for (std::size_t i = 0; i < kWords; ++i) words_[i] += copy.words_[i];
  normalize();
}

double ExactSum::value() const {
  if (words_[kNanWord] > 0 || (words_[kPlusInfWord] > 0 && words_[kMinusInfWord] > 0))
    return std::numeric_limits<double>::quiet_NaN();
  if (words_[kPlusInfWord] > 0) return std::numeric_limits<double>::infinity();
  if (words_[kMinusInfWord] > 0) return -std::numeric_limits<double>::infinity();
  std::array<std::int64_t, kLimbs> limbs;
  std::memcpy(limbs.data(), words_.data(), sizeof limbs);
  carry(limbs.data());
  const bool negative = limbs[kLimbs - 1] < 0;
  if (negative) {
    for (auto& limb : limbs) limb = -limb;
    carry(limbs.data());
  }
  int top = kLimbs - 1;
  while (top >= 0 && limbs[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return 0.0;
  // The top three limbs hold at least 65 significant bits; everything below only matters as "not exactly a tie".
  unsigned __int128 head = 0;
  for (int i = top; i > top - 3; --i)
    head = (head << 32) | (i >= 0 ? static_cast<std::uint64_t>(limbs[static_cast<std::size_t>(i)]) : 0);
  bool sticky = false;
  for (int i = top - 3; i >= 0; --i) sticky = sticky || limbs[static_cast<std::size_t>(i)] != 0;
  int exponent = 32 * (top - 2) - 1074;  // weight of head's lowest bit
  // Bits that a double of this size can keep: 53, fewer when the result is subnormal.
  int width = 0;
  for (unsigned __int128 h = head; h != 0; h >>= 1) ++width;
  int drop = width - 53;
  if (exponent + drop < -1074) drop = -1074 - exponent;
  if (drop > 0) {
    const unsigned __int128 half = static_cast<unsigned __int128>(1) << (drop - 1);
    const unsigned __int128 rest = head & ((half << 1) - 1);
    head >>= drop;
    exponent += drop;
    if (rest > half || (rest == half && (sticky || (head & 1) != 0))) ++head;
  }
  const double magnitude = std::ldexp(static_cast<double>(static_cast<std::uint64_t>(head)), exponent);
  return negative ? -magnitude : magnitude;
}

void ExactSum::write(std::int64_t* words) const {
  ExactSum carried;  // adding carries
  carried.add(*this);
  std::copy(carried.words_.begin(), carried.words_.end(), words);
}

ExactSum ExactSum::read(const std::int64_t* words) {
  ExactSum sum, carried;
  std::copy_n(words, kWords, sum.words_.begin());
  carried.add(sum);
  return carried;
}

}  // namespace megatron
