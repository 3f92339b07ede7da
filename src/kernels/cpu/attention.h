// Tiled attention on the tile kernels of the matrix product (arXiv 2205.14135, 2307.08691).
#pragma once

#include "kernels/attention.h"

namespace megatron::kernels::cpu {

/// Bytes of scratch for the functions below on `num_threads` threads, with the instruction set in use or any other.
std::int64_t attention_forward_scratch_bytes(const SequenceRanges& sequences, const ConstTensorView& q,
                                             const ConstTensorView& k, const ConstTensorView& v, int num_threads);
std::int64_t attention_backward_scratch_bytes(const SequenceRanges& sequences, const ConstTensorView& q,
                                              const ConstTensorView& k, const ConstTensorView& v, int num_threads);

/// As kernels/attention.h (shapes, strides), fp32 and 16 bits; checks and counts nothing. `scratch`: 64-byte aligned,
/// as many bytes as above for exec.num_threads() threads. Outputs alias no operand; all of them are written. Level 0. A
/// row's order of sums: key blocks of 384 (forward) or 128 (backward) from key 0 of its sequence; dk and dv: query
/// heads in order, blocks of 112 queries from query 0.
void attention_forward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                       ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView o, TensorView lse,
                       std::byte* scratch) noexcept;
void attention_backward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                        ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView o, ConstTensorView lse,
                        ConstTensorView d_o, TensorView dq, TensorView dk, TensorView dv, std::byte* scratch) noexcept;

}  // namespace megatron::kernels::cpu
