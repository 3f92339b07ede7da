#include "kernels/activation.h"

#include "kernels/checks.h"
#include "kernels/cpu/activation.h"
#include "kernels/ref/activation.h"

namespace megatron::kernels {

void activation_forward(Executor& exec, ActivationKind kind, ConstTensorView x, TensorView y) {
  const KernelSpan span(exec, "activation_forward");
  check_matrix(x, "x");
  check_view(y, x.shape, x.dtype, "y");
  count_operands(exec, x, y);
  if (exec.is_meta() || x.numel() == 0) return;
  if (is_double(x))
    ref::activation_forward(kind, x, y);
  else
    cpu::activation_forward(exec, kind, x, y);
}

void activation_backward(Executor& exec, ActivationKind kind, ConstTensorView dy, ConstTensorView x, TensorView dx) {
  const KernelSpan span(exec, "activation_backward");
  check_matrix(x, "x");
  check_view(dy, x.shape, x.dtype, "dy");
  check_view(dx, x.shape, x.dtype, "dx");
  count_operands(exec, dy, x, dx);
  if (exec.is_meta() || x.numel() == 0) return;
  if (is_double(x))
    ref::activation_backward(kind, dy, x, dx);
  else
    cpu::activation_backward(exec, kind, dy, x, dx);
}

void gated_activation_forward(Executor& exec, ActivationKind kind, ConstTensorView x, TensorView y) {
  const KernelSpan span(exec, "gated_activation_forward");
  check_matrix(x, "x");
  MEGATRON_CHECK_EQ(x.size(1) % 2, 0, "gate and up share ", x.shape);
  check_view(y, {x.size(0), x.size(1) / 2}, x.dtype, "y");
  count_operands(exec, x, y);
  if (exec.is_meta() || x.numel() == 0) return;
  if (is_double(x))
    ref::gated_activation_forward(kind, x, y);
  else
    cpu::gated_activation_forward(exec, kind, x, y);
}

void gated_activation_backward(Executor& exec, ActivationKind kind, ConstTensorView dy, ConstTensorView x,
                               TensorView dx) {
  const KernelSpan span(exec, "gated_activation_backward");
  check_matrix(x, "x");
  MEGATRON_CHECK_EQ(x.size(1) % 2, 0, "gate and up share ", x.shape);
  check_view(dy, {x.size(0), x.size(1) / 2}, x.dtype, "dy");
  check_view(dx, x.shape, x.dtype, "dx");
  count_operands(exec, dy, x, dx);
  if (exec.is_meta() || x.numel() == 0) return;
  if (is_double(x))
    ref::gated_activation_backward(kind, dy, x, dx);
  else
    cpu::gated_activation_backward(exec, kind, dy, x, dx);
}

}  // namespace megatron::kernels
