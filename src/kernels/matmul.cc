#include "kernels/matmul.h"

#include "kernels/checks.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ref/matmul.h"

namespace megatron::kernels {

namespace {
void check_operand(const tensor::ViewBase& view, const char* name) {
  MEGATRON_CHECK_EQ(view.num_dims(), 2, name, " has shape ", view.shape);
  MEGATRON_CHECK(view.shape[1] <= 1 || view.strides[1] == 1, name, ": last stride ", view.strides[1]);
}

bool has_16_bits(DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float16; }

void check_types(DType a, DType b, DType c, bool accumulate) {
  const bool known = a == DType::float32 || a == DType::float64 || has_16_bits(a);
  const bool widens = has_16_bits(a) && c == DType::float32;
  MEGATRON_CHECK(known && b == a && (c == a || widens), "matmul of ", dtype_name(a), " and ", dtype_name(b), " into ",
                 dtype_name(c));
  MEGATRON_CHECK(!accumulate || !has_16_bits(c), "matmul added to ", dtype_name(c), ": sums are float32 or float64");
}

template <typename View>
auto* bytes_of(const View& view) {
  return static_cast<std::byte*>(view.pointer);
}
}  // namespace

void matmul(Executor& exec, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
            TensorView c, bool accumulate) {
  const KernelSpan span(exec, product_name(transpose_a == Transpose::yes, transpose_b == Transpose::yes),
                        operand_bytes(a, b, c) + (accumulate ? c.bytes() : 0));
  check_operand(a, "a");
  check_operand(b, "b");
  check_operand(c, "c");
  check_types(a.dtype, b.dtype, c.dtype, accumulate);
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  const std::int64_t m = a.size(ta ? 1 : 0);
  const std::int64_t k = a.size(ta ? 0 : 1);
  const std::int64_t n = b.size(tb ? 0 : 1);
  MEGATRON_CHECK_EQ(b.size(tb ? 1 : 0), k, "inner sizes of ", a.shape, " and ", b.shape);
  MEGATRON_CHECK_EQ(c.shape, (Shape{m, n}), "product of ", a.shape, " and ", b.shape);
  exec.counters().matmul_flops += 2 * m * n * k;
  if (m == 0 || n == 0) return;
  if (is_double(c)) {
    if (!exec.is_meta()) ref::matmul(exec, a, ta, b, tb, c, accumulate);
    return;
  }
  std::byte* scratch = exec.scratch(cpu::matmul_scratch_bytes(m, n, k, a.dtype, c.dtype, exec.num_threads()));
  if (exec.is_meta()) return;
  const auto step = [](const tensor::ViewBase& view) { return view.strides[0] * dtype_size(view.dtype); };
  cpu::matmul(
      exec,
      {m, n, k, a.dtype, bytes_of(a), step(a), ta, bytes_of(b), step(b), tb, c.dtype, bytes_of(c), step(c), accumulate},
      scratch);
}

}  // namespace megatron::kernels
