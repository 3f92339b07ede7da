#include "kernels/matmul.h"

#include "kernels/checks.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ref/matmul.h"

namespace megatron::kernels {

void matmul(Executor& exec, ConstTensorView a, Transpose transpose_a, ConstTensorView b, Transpose transpose_b,
            TensorView c, bool accumulate) {
  const KernelSpan span(exec, product_name(transpose_a == Transpose::yes, transpose_b == Transpose::yes),
                        operand_bytes(a, b, c) + (accumulate ? c.bytes() : 0));
  check_matrix(a, "a");
  check_matrix(b, "b");
  check_matrix(c, "c");
  MEGATRON_CHECK(a.dtype == c.dtype && b.dtype == c.dtype, "matmul of ", dtype_name(a.dtype), " and ",
                 dtype_name(b.dtype), " into ", dtype_name(c.dtype));
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
  std::byte* scratch = exec.scratch(cpu::matmul_scratch_bytes(m, n, k, exec.num_threads()));
  if (exec.is_meta()) return;
  cpu::matmul(exec,
              {m, n, k, a.data<float>(), a.stride(0), ta, b.data<float>(), b.stride(0), tb, c.data<float>(),
               c.stride(0), accumulate},
              scratch);
}

}  // namespace megatron::kernels
