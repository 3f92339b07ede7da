#include "kernels/optimizer_variants.h"

#include "kernels/checks.h"
#include "kernels/cpu/optimizer_variants.h"
#include "kernels/ref/optimizer_variants.h"

namespace megatron::kernels {

void adam_l2_step(Executor& exec, const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v,
                  TensorView rounded) {
  const KernelSpan span(exec, "adam_l2_step");
  check_wide(p, "p");
  check_flat(p, p, "p");
  check_flat(g, p, "g");
  check_flat(m, p, "m");
  check_flat(v, p, "v");
  check_rounded(rounded, p);
  count_operands(exec, p, p, g, m, m, v, v, rounded);
  if (exec.is_meta() || p.numel() == 0) return;
  if (is_double(p))
    ref::adam_l2_step(step, p, g, m, v);
  else
    cpu::adam_l2_step(exec, step, p, g, m, v, rounded);
}

void sgd_nesterov_step(Executor& exec, const NesterovStep& step, TensorView p, ConstTensorView g, TensorView buf,
                       TensorView rounded) {
  const KernelSpan span(exec, "sgd_nesterov_step");
  check_wide(p, "p");
  check_flat(p, p, "p");
  check_flat(g, p, "g");
  check_flat(buf, p, "buf");
  check_rounded(rounded, p);
  count_operands(exec, p, p, g, buf, buf, rounded);
  if (exec.is_meta() || p.numel() == 0) return;
  if (is_double(p))
    ref::sgd_nesterov_step(step, p, g, buf);
  else
    cpu::sgd_nesterov_step(exec, step, p, g, buf, rounded);
}

void lion_step(Executor& exec, const LionStep& step, TensorView p, ConstTensorView g, TensorView m,
               TensorView rounded) {
  const KernelSpan span(exec, "lion_step");
  check_wide(p, "p");
  check_flat(p, p, "p");
  check_flat(g, p, "g");
  check_flat(m, p, "m");
  check_rounded(rounded, p);
  count_operands(exec, p, p, g, m, m, rounded);
  if (exec.is_meta() || p.numel() == 0) return;
  if (is_double(p))
    ref::lion_step(step, p, g, m);
  else
    cpu::lion_step(exec, step, p, g, m, rounded);
}

void weighted_sum(Executor& exec, double a, ConstTensorView x, double b, ConstTensorView y, TensorView out,
                  TensorView rounded) {
  const KernelSpan span(exec, "weighted_sum");
  check_wide(out, "out");
  check_flat(out, out, "out");
  check_flat(x, out, "x");
  if (!is_null(y)) check_flat(y, out, "y");
  check_rounded(rounded, out);
  count_operands(exec, x, y, out, rounded);
  if (exec.is_meta() || out.numel() == 0) return;
  if (is_double(out))
    ref::weighted_sum(a, x, b, y, out);
  else
    cpu::weighted_sum(exec, a, x, b, y, out, rounded);
}

}  // namespace megatron::kernels
