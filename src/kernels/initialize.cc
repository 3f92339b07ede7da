#include "kernels/initialize.h"

#include <algorithm>

#include "base/float16.h"
#include "base/units.h"
#include "kernels/checks.h"
#include "kernels/cpu/initialize.h"
#include "kernels/row_walk.h"

namespace megatron::kernels {

namespace {
// A vector is a matrix of one row.
TensorView as_matrix(TensorView w) {
  check_wide(w, "w");
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

// `count` values from logical element `index` on, to w at offset `at`. fp64 gets the fp32 values.
void fill_run(Values values, PhiloxKey key, float scale, std::int64_t index, std::int64_t count, const TensorView& w,
              std::int64_t at) {
  if (!is_double(w)) return values(key, scale, index, count, w.data<float>() + at);
  constexpr std::int64_t kBuffer = 2048;
  float buffer[kBuffer];
  for (std::int64_t done = 0; done < count; done += kBuffer) {
    const std::int64_t some = std::min(kBuffer, count - done);
    values(key, scale, index + done, some, buffer);
    std::copy_n(buffer, some, w.data<double>() + at + done);
  }
}

// Rows of w get the values of the logical elements from `first` on, `logical_cols` further each row. Tasks fill memory
// of 2 MiB where there is much of it, so that no two threads clear the same huge page.
void fill_random(Executor& exec, Values values, PhiloxKey key, double scale, std::int64_t first,
                 std::int64_t logical_cols, const TensorView& w) {
  std::int64_t rows = w.size(0), cols = w.size(1);
  if (cols == logical_cols && w.stride(0) == cols) {  // one run of logical elements
    cols *= rows;
    rows = 1;
  }
  const std::int64_t piece = w.numel() >= std::int64_t{1} << 22 ? std::int64_t{1} << 19 : std::int64_t{1} << 14;
  const std::int64_t group = std::max<std::int64_t>(1, piece / cols), pieces = ceil_div(cols, piece);
  const auto rounded = static_cast<float>(scale);
  exec.parallel_for(ceil_div(rows, group) * pieces, [&](std::int64_t task, int) {
    const std::int64_t begin = task % pieces * piece, count = std::min(piece, cols - begin);
    const std::int64_t from = task / pieces * group;
    for (std::int64_t row = from; row < std::min(rows, from + group); ++row)
      fill_run(values, key, rounded, first + row * logical_cols + begin, count, w, row * w.stride(0) + begin);
  });
}

template <typename T>
void fill_elements(Executor& exec, T value, const TensorView& w) {
  T* to = w.data<T>();
  RowWalk<1>(w.shape, {w.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    std::fill_n(to + at[0], count, value);
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
  const auto rounded = static_cast<float>(value);
  if (is_double(w))
    fill_elements(exec, value, w);
  else if (w.dtype == DType::bfloat16)
    fill_elements(exec, BFloat16(rounded), w);
  else if (w.dtype == DType::float16)
    fill_elements(exec, Float16(rounded), w);
  else
    fill_elements(exec, rounded, w);
}

void claim_pages(Executor& exec, TensorView w) {
  MEGATRON_CHECK(w.is_contiguous(), "w is not dense");
  if (exec.is_meta() || w.numel() == 0) return;
  constexpr std::int64_t kPage = 4 * kKiB, kHugePage = 2 * kMiB;
  auto* const data = static_cast<std::byte*>(w.pointer);
  const std::int64_t skew = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % kHugePage);
  exec.parallel_for(ceil_div(skew + w.bytes(), kHugePage), [&](std::int64_t task, int) {
    const std::int64_t begin = std::max<std::int64_t>(0, task * kHugePage - skew);
    const std::int64_t end = std::min(w.bytes(), (task + 1) * kHugePage - skew);
    for (std::int64_t at = begin; at < end; at += kPage - (skew + at) % kPage) {
      volatile std::byte& byte = data[at];
      byte = byte;
    }
  });
}

}  // namespace megatron::kernels
