#include "kernels/attention.h"

#include <algorithm>

#include "kernels/attention_mask.h"
#include "kernels/checks.h"
#include "kernels/cpu/attention.h"
#include "kernels/ref/attention.h"

namespace megatron::kernels {

namespace {
void check_heads(const tensor::ViewBase& view, std::int64_t tokens, std::int64_t heads, std::int64_t size, DType dtype,
                 const char* name) {
  check_view(view, {tokens, heads, size}, dtype, name);
}

void check_starts(std::span<const std::int64_t> starts, std::int64_t tokens, const char* name) {
  MEGATRON_CHECK(!starts.empty() && starts.front() == 0, name, " do not begin with 0");
  MEGATRON_CHECK_EQ(starts.back(), tokens, name, " do not end with the number of rows");
  MEGATRON_CHECK(std::is_sorted(starts.begin(), starts.end()), name, " descend");
}

void check_operands(const AttentionParams& params, const SequenceRanges& sequences, const ConstTensorView& q,
                    const ConstTensorView& k, const ConstTensorView& v) {
  check_floating(q, "q");
  MEGATRON_CHECK_EQ(q.num_dims(), 3, "q has shape ", q.shape);
  MEGATRON_CHECK_EQ(k.num_dims(), 3, "k has shape ", k.shape);
  MEGATRON_CHECK_EQ(v.num_dims(), 3, "v has shape ", v.shape);
  check_heads(q, q.size(0), q.size(1), q.size(2), q.dtype, "q");
  check_heads(k, k.size(0), k.size(1), q.size(2), q.dtype, "k");
  check_heads(v, k.size(0), k.size(1), v.size(2), q.dtype, "v");
  MEGATRON_CHECK(k.size(1) > 0 && q.size(1) % k.size(1) == 0, "query heads ", q.size(1), ", key heads ", k.size(1));
  check_starts(sequences.starts, q.size(0), "starts");
  const auto key_starts = sequences.key_starts.empty() ? sequences.starts : sequences.key_starts;
  check_starts(key_starts, k.size(0), "key_starts");
  MEGATRON_CHECK_EQ(key_starts.size(), sequences.starts.size(), "key_starts");
  MEGATRON_CHECK(params.dropout >= 0 && params.dropout < 1, "dropout ", params.dropout);
  if (params.dropout > 0) {
    MEGATRON_CHECK_EQ(sequences.sample.size() + 1, sequences.starts.size(), "sample");
    MEGATRON_CHECK_EQ(sequences.first_position.size() + 1, sequences.starts.size(), "first_position");
  }
}

// 2·pairs·(D + E) per head, once forward and twice backward: model FLOPs, without the recomputed scores.
void count_flops(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                 const ConstTensorView& q, const ConstTensorView& v, std::int64_t passes) {
  exec.counters().attention_flops +=
      passes * 2 * visible_pairs(params, sequences) * (q.size(2) + v.size(2)) * q.size(1);
}
}  // namespace

void attention_forward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                       ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView o, TensorView lse) {
  const KernelSpan span(exec, "attention_forward", operand_bytes(q, k, v, o, lse));
  check_operands(params, sequences, q, k, v);
  check_heads(o, q.size(0), q.size(1), v.size(2), q.dtype, "o");
  check_view(lse, {q.size(0), q.size(1)}, accumulation_dtype(q.dtype), "lse");
  count_flops(exec, params, sequences, q, v, 1);
  if (q.numel() == 0) return;
  if (is_double(q)) {
    if (!exec.is_meta()) ref::attention_forward(exec, params, sequences, q, k, v, o, lse);
    return;
  }
  std::byte* scratch = exec.scratch(cpu::attention_forward_scratch_bytes(sequences, q, k, v, exec.num_threads()));
  if (exec.is_meta()) return;
  cpu::attention_forward(exec, params, sequences, q, k, v, o, lse, scratch);
}

void attention_backward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                        ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView o, ConstTensorView lse,
                        ConstTensorView d_o, TensorView dq, TensorView dk, TensorView dv) {
  const KernelSpan span(exec, "attention_backward", operand_bytes(q, k, v, o, lse, d_o, dq, dk, dv));
  check_operands(params, sequences, q, k, v);
  check_heads(o, q.size(0), q.size(1), v.size(2), q.dtype, "o");
  check_heads(d_o, q.size(0), q.size(1), v.size(2), q.dtype, "d_o");
  check_view(lse, {q.size(0), q.size(1)}, accumulation_dtype(q.dtype), "lse");
  check_view(dq, q.shape, q.dtype, "dq");
  check_view(dk, k.shape, q.dtype, "dk");
  check_view(dv, v.shape, q.dtype, "dv");
  count_flops(exec, params, sequences, q, v, 2);
  if (is_double(q)) {
    if (!exec.is_meta()) ref::attention_backward(exec, params, sequences, q, k, v, o, lse, d_o, dq, dk, dv);
    return;
  }
  std::byte* scratch = exec.scratch(cpu::attention_backward_scratch_bytes(sequences, q, k, v, exec.num_threads()));
  if (exec.is_meta()) return;
  cpu::attention_backward(exec, params, sequences, q, k, v, o, lse, d_o, dq, dk, dv, scratch);
}

}  // namespace megatron::kernels
