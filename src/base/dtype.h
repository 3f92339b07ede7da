// Element types of tensors and files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"

namespace megatron {

enum class DType : std::uint8_t { float32, float64, bfloat16, float16, int64, int32, uint16, uint8 };

/// Bytes of one element.
constexpr std::int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::bfloat16:
    case DType::float16:
    case DType::uint16:
      return 2;
    case DType::uint8:
      return 1;
  }
  return 0;
}

constexpr bool is_16_bit_float(DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float16; }
/// What sums over values of `dtype` are kept in: float32 for the 16-bit types, else the type itself.
constexpr DType accumulation_dtype(DType dtype) { return is_16_bit_float(dtype) ? DType::float32 : dtype; }

/// "float32", "bfloat16", …
constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
    case DType::int64:
      return "int64";
    case DType::int32:
      return "int32";
    case DType::uint16:
      return "uint16";
    case DType::uint8:
      return "uint8";
  }
  return "?";
}

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::uint16_t> {
  static constexpr DType value = DType::uint16;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};

}  // namespace megatron
