#include "kernels/ref/matmul.h"

#include <algorithm>

namespace megatron::kernels::ref {

namespace {
constexpr std::int64_t kColumns = 64;

// One chunk of K for one row and up to kColumns columns; sums[j] are the chains.
void chunk_row(const double* a, std::int64_t a_step, const double* b, std::int64_t b_step, std::int64_t b_column,
               std::int64_t depth, std::int64_t width, double* sums) {
  std::fill(sums, sums + width, 0.0);
  for (std::int64_t k = 0; k < depth; ++k) {
    const double factor = a[k * a_step];
    const double* row = b + k * b_step;
    for (std::int64_t j = 0; j < width; ++j) sums[j] += factor * row[j * b_column];
  }
}
}  // namespace

void matmul(Executor& exec, ConstTensorView a, bool transpose_a, ConstTensorView b, bool transpose_b, TensorView c,
            bool accumulate) {
  const std::int64_t m = c.size(0), n = c.size(1), depth = a.size(transpose_a ? 0 : 1);
  const std::int64_t a_row = transpose_a ? 1 : a.stride(0), a_step = transpose_a ? a.stride(0) : 1;
  const std::int64_t b_step = transpose_b ? 1 : b.stride(0), b_column = transpose_b ? b.stride(0) : 1;
  const double* a_data = a.data<double>();
  const double* b_data = b.data<double>();
  double* c_data = c.data<double>();
  const std::int64_t blocks = (n + kColumns - 1) / kColumns;
  exec.parallel_for(m * blocks, [&](std::int64_t task, int) {
    const std::int64_t i = task / blocks, j0 = task % blocks * kColumns;
    const std::int64_t width = std::min(kColumns, n - j0);
    double* out = c_data + i * c.stride(0) + j0;
    if (!accumulate) std::fill(out, out + width, 0.0);
    double sums[kColumns];
    for (std::int64_t k0 = 0; k0 < depth; k0 += kMatmulChunk) {
      chunk_row(a_data + i * a_row + k0 * a_step, a_step, b_data + k0 * b_step + j0 * b_column, b_step, b_column,
                std::min(kMatmulChunk, depth - k0), width, sums);
      for (std::int64_t j = 0; j < width; ++j) out[j] += sums[j];
    }
  });
}

}  // namespace megatron::kernels::ref
