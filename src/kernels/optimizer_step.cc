#include "kernels/optimizer_step.h"

#include "kernels/checks.h"
#include "kernels/cpu/optimizer_step.h"
#include "kernels/ref/optimizer_step.h"

namespace megatron::kernels {

void adamw_step(Executor& exec, const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v,
                TensorView rounded) {
  const KernelSpan span(exec, "adamw_step");
  check_wide(p, "p");
  check_flat(p, p, "p");
  check_flat(g, p, "g");
  check_flat(m, p, "m");
  check_flat(v, p, "v");
  check_rounded(rounded, p);
  count_operands(exec, p, p, g, m, m, v, v, rounded);
  if (exec.is_meta() || p.numel() == 0) return;
  if (is_double(p))
    ref::adamw_step(step, p, g, m, v);
  else
    cpu::adamw_step(exec, step, p, g, m, v, rounded);
}

void sgd_step(Executor& exec, double lr, double momentum, double weight_decay, double grad_scale, bool first,
              TensorView p, ConstTensorView g, TensorView buf, TensorView rounded) {
  const KernelSpan span(exec, "sgd_step");
  check_wide(p, "p");
  check_flat(p, p, "p");
  check_flat(g, p, "g");
  MEGATRON_CHECK(!is_null(buf) || momentum == 0, "momentum ", momentum, " needs a buffer");
  if (!is_null(buf)) check_flat(buf, p, "buf");
  check_rounded(rounded, p);
  count_operands(exec, p, p, g, buf, buf, rounded);
  if (exec.is_meta() || p.numel() == 0) return;
  const ref::SgdStep step{lr, momentum, weight_decay, grad_scale, first};
  if (is_double(p))
    ref::sgd_step(step, p, g, buf);
  else
    cpu::sgd_step(exec, step, p, g, buf, rounded);
}

void add_squared_norm(Executor& exec, ConstTensorView x, ExactSum& sum) {
  const KernelSpan span(exec, "add_squared_norm");
  check_floating(x, "x");
  check_flat(x, x, "x");
  count_operands(exec, x);
  if (x.numel() == 0) return;
  if (is_double(x)) {
    if (!exec.is_meta()) ref::add_squared_norm(x, sum);
    return;
  }
  if (!exec.is_meta()) cpu::add_squared_norm(exec, x, sum);
}

bool all_finite(Executor& exec, ConstTensorView x) {
  const KernelSpan span(exec, "all_finite");
  check_floating(x, "x");
  check_flat(x, x, "x");
  count_operands(exec, x);
  if (exec.is_meta() || x.numel() == 0) return true;
  return is_double(x) ? ref::all_finite(x) : cpu::all_finite(exec, x);
}

std::int64_t count_zeros(Executor& exec, ConstTensorView x) {
  const KernelSpan span(exec, "count_zeros");
  check_floating(x, "x");
  check_flat(x, x, "x");
  count_operands(exec, x);
  if (exec.is_meta() || x.numel() == 0) return 0;
  return is_double(x) ? ref::count_zeros(x) : cpu::count_zeros(exec, x);
}

}  // namespace megatron::kernels
