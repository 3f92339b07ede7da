// The two 16-bit floating-point types: bfloat16 (upper half of a float) and float16 (IEEE 754 binary16).
// To float is exact; from float rounds once, to nearest even. A value above the largest finite one becomes infinity,
// subnormals are kept, a NaN stays a NaN: quiet, with its sign and the upper bits of its payload.
#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace megatron {

constexpr std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float bfloat16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr std::uint16_t float16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U, size = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (size > 0x7F800000U) {
    half = 0x7E00U | ((size >> 13) & 0x03FFU);
  } else if (size >= 0x477FF000U) {  // 65520, half-way between the largest float16 and the next power of two
    half = 0x7C00U;
  } else if (size < 0x38800000U) {  // below the smallest normal float16: the sum with ½ rounds to multiples of 2⁻²⁴
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - 0x3F000000U;
  } else {
    half = (size - (112U << 23) + 0x0FFFU + ((size >> 13) & 1U)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

constexpr float float16_value(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31U, fraction = bits & 0x03FFU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (fraction << 13));
  const float size = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -size : size;
}

/// Elements of tensors and operands of conversions; arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits;
  BFloat16() = default;
  explicit constexpr BFloat16(float value) : bits(bfloat16_bits(value)) {}
  static constexpr BFloat16 from_bits(std::uint16_t bits) {
    BFloat16 value(0.0F);
    value.bits = bits;
    return value;
  }
  constexpr operator float() const { return bfloat16_value(bits); }
};

struct Float16 {
  std::uint16_t bits;
  Float16() = default;
  explicit constexpr Float16(float value) : bits(float16_bits(value)) {}
  static constexpr Float16 from_bits(std::uint16_t bits) {
    Float16 value(0.0F);
    value.bits = bits;
    return value;
  }
  constexpr operator float() const { return float16_value(bits); }
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::float16;
};

}  // namespace megatron
