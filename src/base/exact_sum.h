// An order-independent sum of doubles: a fixed-point accumulator wide enough for every finite double.
// Adding is exact, so the result does not depend on the order, the cut or the number of ranks; states of several ranks
// are merged by adding their limbs as integers (any all-reduce of int64 does it).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace megatron {

class ExactSum {
 public:
  /// 32-bit limbs over exponents −1074 … 1023 and headroom; each limb is carried in an int64 so that 2^31 additions or
  /// merged ranks cannot overflow it. The last three entries count NaN, +Inf and −Inf.
  static constexpr int kLimbs = 68;
  static constexpr int kWords = kLimbs + 3;

  void add(double value);
  void add(const ExactSum& other);
  /// The exact sum rounded to the nearest double (ties to even); NaN or ±Inf if such a value was added.
  double value() const;
  /// State as integers, to be summed over ranks.
  std::span<std::int64_t, kWords> words() { return words_; }
  std::span<const std::int64_t, kWords> words() const { return words_; }
  /// Writes kWords of state for a sum over ranks: limbs are carried first, so that the sum cannot overflow them.
  void write(std::int64_t* words) const;
  /// What write() wrote, or a sum over ranks of it.
  static ExactSum read(const std::int64_t* words);

 private:
  void normalize();

  std::array<std::int64_t, kWords> words_{};
  std::int64_t pending_ = 0;
};

}  // namespace megatron
