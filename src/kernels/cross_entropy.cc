#include "kernels/cross_entropy.h"

#include "kernels/checks.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/ref/cross_entropy.h"

namespace megatron::kernels {

namespace {
void check_logits(const tensor::ViewBase& logits, std::int64_t valid) {
  check_matrix(logits, "logits");
  MEGATRON_CHECK(valid >= 0 && valid <= logits.size(1), "valid columns ", valid, " of ", logits.shape);
}
}  // namespace

void row_max(Executor& exec, ConstTensorView logits, std::int64_t valid, TensorView row_max) {
  const KernelSpan span(exec, "row_max");
  check_logits(logits, valid);
  check_vector(row_max, logits.size(0), accumulation_dtype(logits.dtype), "row_max");
  count_bytes(exec, logits.size(0) * valid * dtype_size(logits.dtype) + row_max.bytes());
  if (exec.is_meta() || logits.size(0) == 0) return;
  if (is_double(logits))
    ref::row_max(logits, valid, row_max);
  else
    cpu::row_max(exec, logits, valid, row_max);
}

void softmax_statistics(Executor& exec, ConstTensorView logits, std::int64_t valid, ConstTensorView max,
                        const std::int64_t* labels, std::int64_t first_column, TensorView sum_exp, TensorView target) {
  const KernelSpan span(exec, "softmax_statistics");
  check_logits(logits, valid);
  check_vector(max, logits.size(0), accumulation_dtype(logits.dtype), "max");
  check_vector(sum_exp, logits.size(0), accumulation_dtype(logits.dtype), "sum_exp");
  check_vector(target, logits.size(0), accumulation_dtype(logits.dtype), "target");
  check_pointer(exec, labels, logits.size(0), "labels");
  count_bytes(exec, logits.size(0) * valid * dtype_size(logits.dtype) + max.bytes() + sum_exp.bytes() + target.bytes());
  if (exec.is_meta() || logits.size(0) == 0) return;
  if (is_double(logits))
    ref::softmax_statistics(logits, valid, max, labels, first_column, sum_exp, target);
  else
    cpu::softmax_statistics(exec, logits, valid, max, labels, first_column, sum_exp, target);
}

void softmax_gradient_in_place(Executor& exec, TensorView logits, std::int64_t valid, ConstTensorView max,
                               ConstTensorView sum_exp, const std::int64_t* labels, std::int64_t first_column,
                               ConstTensorView seed) {
  const KernelSpan span(exec, "softmax_gradient_in_place");
  check_logits(logits, valid);
  check_vector(max, logits.size(0), accumulation_dtype(logits.dtype), "max");
  check_vector(sum_exp, logits.size(0), accumulation_dtype(logits.dtype), "sum_exp");
  check_vector(seed, logits.size(0), accumulation_dtype(logits.dtype), "seed");
  check_pointer(exec, labels, logits.size(0), "labels");
  count_operands(exec, logits, logits, max, sum_exp, seed);
  if (exec.is_meta() || logits.numel() == 0) return;
  if (is_double(logits))
    ref::softmax_gradient_in_place(logits, valid, max, sum_exp, labels, first_column, seed);
  else
    cpu::softmax_gradient_in_place(exec, logits, valid, max, sum_exp, labels, first_column, seed);
}

}  // namespace megatron::kernels
