#include "kernels/norm.h"

#include "kernels/checks.h"
#include "kernels/cpu/norm.h"
#include "kernels/ref/norm.h"

namespace megatron::kernels {

void norm_forward(Executor& exec, NormKind kind, ConstTensorView x, ConstTensorView gamma, ConstTensorView beta,
                  double eps, TensorView y, TensorView mean, TensorView rstd) {
  const KernelSpan span(exec, "norm_forward");
  check_matrix(x, "x");
  const std::int64_t rows = x.size(0), hidden = x.size(1);
  check_stream(x, "x", y, "y");
  check_vector(gamma, hidden, y.dtype, "gamma");
  if (!is_null(beta)) check_vector(beta, hidden, y.dtype, "beta");
  check_view(y, x.shape, y.dtype, "y");
  if (kind == NormKind::layer_norm) check_vector(mean, rows, accumulation_dtype(x.dtype), "mean");
  check_vector(rstd, rows, accumulation_dtype(x.dtype), "rstd");
  MEGATRON_CHECK_GE(hidden, 1);
  count_operands(exec, x, gamma, beta, y, rstd);
  if (kind == NormKind::layer_norm) count_operands(exec, mean);
  if (exec.is_meta() || rows == 0) return;
  if (is_double(x))
    ref::norm_forward(exec, kind, x, gamma, beta, eps, y, mean, rstd);
  else
    cpu::norm_forward(exec, kind, x, gamma, beta, eps, y, mean, rstd);
}

void norm_backward(Executor& exec, NormKind kind, ConstTensorView dy, ConstTensorView x, ConstTensorView gamma,
                   ConstTensorView mean, ConstTensorView rstd, TensorView dx, TensorView dgamma, TensorView dbeta) {
  const KernelSpan span(exec, "norm_backward");
  check_matrix(x, "x");
  const std::int64_t rows = x.size(0), hidden = x.size(1);
  const DType wide = accumulation_dtype(x.dtype);
  check_stream(x, "x", dy, "dy");
  check_view(dy, x.shape, dy.dtype, "dy");
  check_view(dx, x.shape, x.dtype, "dx");
  check_vector(gamma, hidden, dy.dtype, "gamma");
  if (kind == NormKind::layer_norm) check_vector(mean, rows, wide, "mean");
  check_vector(rstd, rows, wide, "rstd");
  check_vector(dgamma, hidden, wide, "dgamma");
  if (!is_null(dbeta)) check_vector(dbeta, hidden, wide, "dbeta");
  count_operands(exec, dy, x, gamma, rstd, dx, dgamma, dgamma, dbeta, dbeta);
  if (kind == NormKind::layer_norm) count_operands(exec, mean);
  if (rows == 0) return;
  float* parts = is_double(x) ? nullptr : float_scratch(exec, cpu::norm_backward_parts(rows, hidden));
  if (exec.is_meta()) return;
  if (is_double(x))
    ref::norm_backward(exec, kind, dy, x, gamma, mean, rstd, dx, dgamma, dbeta);
  else
    cpu::norm_backward(exec, kind, dy, x, gamma, mean, rstd, dx, dgamma, dbeta, parts);
}

}  // namespace megatron::kernels
