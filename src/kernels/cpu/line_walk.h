// The cache lines of a matrix, one after the other: what a product fetches ahead of its use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace megatron::kernels::cpu {

/// The cache lines of a matrix, row after row.
class LineWalk {
 public:
  LineWalk() = default;
  /// Rows of row_bytes bytes, `stride` bytes apart.
  LineWalk(const std::byte* row, std::int64_t stride, std::int64_t rows, std::int64_t row_bytes)
      : row_(row), stride_(stride), row_bytes_(row_bytes), left_(rows * ceil_div(row_bytes, kLine)) {}
  /// Lines that are left.
  std::int64_t count() const { return left_; }
  /// The next line, and a step on; at most count() times.
  const std::byte* next() {
    const std::byte* line = row_ + at_;
    at_ += kLine;
    --left_;
    if (at_ >= row_bytes_) {
      at_ = 0;
      row_ += stride_;
    }
    return line;
  }
  /// Fetches the next lines into the second-level cache.
  void prefetch(std::int64_t lines) {
    for (std::int64_t i = std::min(lines, left_); i > 0; --i) __builtin_prefetch(next(), 0, 2);
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const std::byte* row_ = nullptr;
  std::int64_t stride_ = 0, row_bytes_ = 0, left_ = 0, at_ = 0;
};

}  // namespace megatron::kernels::cpu
