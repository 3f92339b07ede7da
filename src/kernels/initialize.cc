#include "kernels/initialize.h"

#include <algorithm>

#include "base/units.h"
#include "kernels/checks.h"
#include "kernels/cpu/initialize.h"
#include "kernels/row_walk.h"

namespace megatron::kernels {

namespace {
// A vector is a matrix of one row.
TensorView as_matrix(TensorView w) {
  check_floating(w, "w");
  MEGATRON_CHECK(w.num_dims() == 1 || w.num_dims() == 2, "w has shape ", w.shape);
  MEGATRON_CHECK(w.shape[-1] <= 1 || w.strides[-1] == 1, "w: last stride ", w.strides[-1]);
  if (w.num_dims() == 2) return w;
  const std::int64_t size = w.size(0);
  w.shape = {1, size};
  w.strides = {size, 1};
  return w;
}

void check_box(std::int64_t row, std::int64_t col, std::int64_t logical_cols, const TensorView& w) {
  MEGATRON_CHECK(row >= 0 && col >= 0 && col + w.size(1) <= logical_cols, "box at (", row, ", ", col, ") of shape ",
                 w.shape, " in ", logical_cols, " logical columns");
}

using Values = void (*)(PhiloxKey key, float scale, std::int64_t first, std::int64_t count, float* values) noexcept;

// Rows of w get the values of the logical elements from `first` on, `logical_cols` further each row. fp64 gets the fp32
// values.
void fill_random(Executor& exec, Values values, PhiloxKey key, double scale, std::int64_t first,
                 std::int64_t logical_cols, const TensorView& w) {
  constexpr std::int64_t kPiece = 2048;
  const std::int64_t pieces = ceil_div(w.size(1), kPiece);
  const auto rounded = static_cast<float>(scale);
  exec.parallel_for(w.size(0) * pieces, [&](std::int64_t task, int) {
    const std::int64_t row = task / pieces, begin = task % pieces * kPiece;
    const std::int64_t count = std::min(kPiece, w.size(1) - begin), at = row * w.stride(0) + begin;
    const std::int64_t index = first + row * logical_cols + begin;
    if (!is_double(w)) return values(key, rounded, index, count, w.data<float>() + at);
    float buffer[kPiece];
    values(key, rounded, index, count, buffer);
    std::copy_n(buffer, count, w.data<double>() + at);
  });
}
}  // namespace

void fill_normal(Executor& exec, PhiloxKey key, double std, std::int64_t row, std::int64_t col,
                 std::int64_t logical_cols, TensorView w_box) {
  const KernelSpan span(exec, "fill_normal");
  const TensorView w = as_matrix(w_box);
  check_box(row, col, logical_cols, w);
  count_operands(exec, w);
  if (exec.is_meta() || w.numel() == 0) return;
  fill_random(exec, &cpu::normal_values, key, std, row * logical_cols + col, logical_cols, w);
}

void fill_uniform(Executor& exec, PhiloxKey key, double bound, std::int64_t row, std::int64_t col,
                  std::int64_t logical_cols, TensorView w_box) {
  const KernelSpan span(exec, "fill_uniform");
  const TensorView w = as_matrix(w_box);
  check_box(row, col, logical_cols, w);
  count_operands(exec, w);
  if (exec.is_meta() || w.numel() == 0) return;
  fill_random(exec, &cpu::uniform_values, key, bound, row * logical_cols + col, logical_cols, w);
}

void fill_constant(Executor& exec, double value, TensorView w) {
  const KernelSpan span(exec, "fill_constant");
  check_floating(w, "w");
  check_view(w, w.shape, w.dtype, "w");
  count_operands(exec, w);
  if (exec.is_meta() || w.numel() == 0) return;
  const RowWalk<1> walk(w.shape, {w.strides});
  if (is_double(w)) {
    double* to = w.data<double>();
    walk.for_each_piece(exec, [&](const auto& at, std::int64_t count) { std::fill_n(to + at[0], count, value); });
  } else {
    float* to = w.data<float>();
    const auto rounded = static_cast<float>(value);
    walk.for_each_piece(exec, [&](const auto& at, std::int64_t count) { std::fill_n(to + at[0], count, rounded); });
  }
}

}  // namespace megatron::kernels
