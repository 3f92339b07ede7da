// Rows of bfloat16 for attention scores with the instruction for pairs of k, where their bits are those of float32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace megatron::kernels::cpu {

/// Biased exponents of numbers that are not zero.
struct Exponents {
  std::int64_t least = 255, largest = 0;
};

/// Of rows of `count` elements, `step` bytes apart. Needs has_pair_instruction(), as all of this.
Exponents exponents_of(const std::byte* elements, std::int64_t step, std::int64_t rows, std::int64_t count);
inline Exponents joined(const Exponents& a, const Exponents& b) {
  return {std::min(a.least, b.least), std::max(a.largest, b.largest)};
}

/// Whether left·scale times right in pairs has the bits of fused multiply-adds of floats, in any number of steps: the
/// scale is a power of two, and every product is a multiple of 2⁻¹²⁶ or zero, so that no sum is subnormal.
bool pairs_are_exact(const Exponents& left, float scale, const Exponents& right);

/// Units of `count` elements (an even number) times `scale`, which is exact. The even k is the upper half: the
/// instruction takes the upper half first, and k ascends as in products of floats.
void swap_pairs(const std::byte* elements, std::int64_t count, float scale, float* units);

}  // namespace megatron::kernels::cpu
