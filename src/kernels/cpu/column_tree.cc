#include "kernels/cpu/column_tree.h"

#include "kernels/cpu/parallel_rows.h"

namespace megatron::kernels::cpu {

namespace {
// Left-full tree over rows [first, first + count) of one strip of columns, in place: the sum lands in row `first`.
void fold(float* parts, std::int64_t first, std::int64_t count, std::int64_t stride, std::int64_t columns) {
  if (count == 1) return;
  std::int64_t half = 1;
  while (2 * half < count) half *= 2;
  fold(parts, first, half, stride, columns);
  fold(parts, first + half, count - half, stride, columns);
  float* left = parts + first * stride;
  const float* right = parts + (first + half) * stride;
  for (std::int64_t j = 0; j < columns; ++j) left[j] += right[j];
}
}  // namespace

void add_tree_of_rows(Executor& exec, float* parts, std::int64_t rows, std::int64_t width, float* out) noexcept {
  parallel_rows(exec, width, rows, [&](std::int64_t begin, std::int64_t end) {
    fold(parts + begin, 0, rows, width, end - begin);
    for (std::int64_t j = begin; j < end; ++j) out[j] += parts[j];
  });
}

}  // namespace megatron::kernels::cpu
