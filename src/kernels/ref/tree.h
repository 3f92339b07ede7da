// The canonical tree over rows of partial sums: left-full, split at the largest power of two below n.
#pragma once

#include <cstdint>

namespace megatron::kernels::ref {

inline double tree_of_column(const double* column, std::int64_t count, std::int64_t stride) {
  if (count == 1) return column[0];
  std::int64_t half = 1;
  while (2 * half < count) half *= 2;
  return tree_of_column(column, half, stride) + tree_of_column(column + half * stride, count - half, stride);
}

/// out[j] += tree over r of parts[r][j]; rows ≥ 1.
inline void add_tree_of_rows(const double* parts, std::int64_t rows, std::int64_t width, double* out) {
  for (std::int64_t j = 0; j < width; ++j) out[j] += tree_of_column(parts + j, rows, width);
}

}  // namespace megatron::kernels::ref
