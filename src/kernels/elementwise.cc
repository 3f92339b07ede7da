#include "kernels/elementwise.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "kernels/checks.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/ref/elementwise.h"
#include "kernels/row_walk.h"

namespace megatron::kernels {

namespace {
void check_dropout(const Executor& exec, const DropoutSpec& dropout, RowPositions rows, std::int64_t count) {
  MEGATRON_CHECK(dropout.probability >= 0 && dropout.probability < 1, "dropout ", dropout.probability);
  if (dropout.probability > 0) {
    check_pointer(exec, rows.sample_index, count, "sample_index");
    check_pointer(exec, rows.position, count, "position");
    MEGATRON_CHECK_GE(dropout.first_feature, 0);
  }
}

// A double as a float that rounds on to 16 bits as the double itself would: cut off, with a last bit that tells whether
// anything was lost.
float cut_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

template <typename To>
To converted(double value) {
  if constexpr (sizeof(To) == 2)
    return To(cut_to_odd(value));
  else
    return static_cast<To>(value);
}

template <typename From, typename To>
void convert(Executor& exec, ConstTensorView src, TensorView dst) {
  const From* from = src.data<From>();
  To* to = dst.data<To>();
  RowWalk<2>(src.shape, {src.strides, dst.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[at[1] + i] = converted<To>(static_cast<double>(from[at[0] + i]));
  });
}

// From or to the oracle's type.
template <typename Other>
void convert_double(Executor& exec, ConstTensorView src, TensorView dst) {
  if (is_double(src))
    convert<double, Other>(exec, src, dst);
  else
    convert<Other, double>(exec, src, dst);
}

void convert_any(Executor& exec, ConstTensorView src, TensorView dst) {
  if (!is_double(src) && !is_double(dst)) return cpu::convert(exec, src, dst);
  const DType other = is_double(src) ? dst.dtype : src.dtype;
  if (other == DType::bfloat16)
    convert_double<BFloat16>(exec, src, dst);
  else if (other == DType::float16)
    convert_double<Float16>(exec, src, dst);
  else
    convert_double<float>(exec, src, dst);
}
}  // namespace

void copy(Executor& exec, ConstTensorView src, TensorView dst) {
  const KernelSpan span(exec, "copy");
  check_view(src, dst.shape, src.dtype, "src");
  check_view(dst, src.shape, dst.dtype, "dst");
  MEGATRON_CHECK(src.dtype == dst.dtype || (is_floating(src.dtype) && is_floating(dst.dtype)), "copy of ",
                 dtype_name(src.dtype), " to ", dtype_name(dst.dtype));
  count_operands(exec, src, dst);
  if (exec.is_meta() || src.numel() == 0) return;
  if (src.dtype != dst.dtype) return convert_any(exec, src, dst);
  const std::int64_t bytes = dtype_size(src.dtype);
  const auto* from = static_cast<const std::byte*>(src.pointer);
  auto* to = static_cast<std::byte*>(dst.pointer);
  RowWalk<2>(src.shape, {src.strides, dst.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    std::memcpy(to + at[1] * bytes, from + at[0] * bytes, static_cast<std::size_t>(count * bytes));
  });
}

void fill_zero(Executor& exec, TensorView dst) {
  const KernelSpan span(exec, "fill_zero");
  check_view(dst, dst.shape, dst.dtype, "dst");
  count_operands(exec, dst);
  if (exec.is_meta() || dst.numel() == 0) return;
  const std::int64_t bytes = dtype_size(dst.dtype);
  auto* to = static_cast<std::byte*>(dst.pointer);
  RowWalk<1>(dst.shape, {dst.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    std::memset(to + at[0] * bytes, 0, static_cast<std::size_t>(count * bytes));
  });
}

void add_in_place(Executor& exec, ConstTensorView src, TensorView dst) {
  const KernelSpan span(exec, "add_in_place");
  check_floating(dst, "dst");
  check_meet(src, "src", dst, "dst");
  check_view(src, dst.shape, src.dtype, "src");
  check_view(dst, dst.shape, dst.dtype, "dst");
  count_operands(exec, src, dst, dst);
  if (exec.is_meta() || dst.numel() == 0) return;
  if (is_double(dst))
    ref::add_in_place(exec, src, dst);
  else
    cpu::add_in_place(exec, src, dst);
}

void add_bias(Executor& exec, ConstTensorView bias, TensorView y) {
  const KernelSpan span(exec, "add_bias");
  check_matrix(y, "y");
  check_vector(bias, y.size(1), y.dtype, "bias");
  count_operands(exec, bias, y, y);
  if (exec.is_meta() || y.numel() == 0) return;
  if (is_double(y))
    ref::add_bias(bias, y);
  else
    cpu::add_bias(exec, bias, y);
}

void bias_grad(Executor& exec, ConstTensorView dy, TensorView grad) {
  const KernelSpan span(exec, "bias_grad");
  check_matrix(dy, "dy");
  check_vector(grad, dy.size(1), accumulation_dtype(dy.dtype), "grad");
  count_operands(exec, dy, grad, grad);
  if (dy.numel() == 0) return;
  float* parts = is_double(dy) ? nullptr : float_scratch(exec, cpu::bias_grad_parts(dy.size(0), dy.size(1)));
  if (exec.is_meta()) return;
  if (is_double(dy))
    ref::bias_grad(dy, grad);
  else
    cpu::bias_grad(exec, dy, grad, parts);
}

void bias_dropout_add(Executor& exec, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                      const DropoutSpec& dropout, RowPositions rows, TensorView y) {
  const KernelSpan span(exec, "bias_dropout_add");
  check_matrix(x, "x");
  check_view(y, x.shape, y.dtype, "y");
  check_stream(y, "y", x, "x");
  if (!is_null(bias)) check_vector(bias, x.size(1), x.dtype, "bias");
  if (!is_null(residual)) check_view(residual, x.shape, y.dtype, "residual");
  check_dropout(exec, dropout, rows, x.size(0));
  count_operands(exec, x, bias, residual, y);
  if (exec.is_meta() || x.numel() == 0) return;
  if (is_double(x))
    ref::bias_dropout_add(x, bias, residual, dropout, rows, y);
  else
    cpu::bias_dropout_add(exec, x, bias, residual, dropout, rows, y);
}

void dropout_backward(Executor& exec, ConstTensorView dy, const DropoutSpec& dropout, RowPositions rows,
                      TensorView dx) {
  const KernelSpan span(exec, "dropout_backward");
  check_matrix(dy, "dy");
  check_view(dx, dy.shape, dx.dtype, "dx");
  check_meet(dy, "dy", dx, "dx");
  check_dropout(exec, dropout, rows, dy.size(0));
  count_operands(exec, dy, dx);
  if (exec.is_meta() || dy.numel() == 0) return;
  if (is_double(dy))
    ref::bias_dropout_add(dy, {}, {}, dropout, rows, dx);
  else
    cpu::bias_dropout_add(exec, dy, {}, {}, dropout, rows, dx);
}

}  // namespace megatron::kernels
