// Causal attention over packed sequences: tiled, online softmax (arXiv 2205.14135), no s×s memory.
#pragma once

#include <span>

#include "base/rng.h"
#include "kernels/executor.h"

namespace megatron::kernels {

/// Legend: T tokens of all sequences, Hq query heads, Hk key/value heads (Hq a multiple of Hk), D size of q/k heads, E
/// of v heads.
struct AttentionParams {
  double scale = 1.0;
  bool causal = true;
  /// Position of query row 0 relative to key row 0 of each sequence (decoding with a cache); 0 in training.
  std::int64_t causal_offset = 0;
  /// Keys further than `window` behind a query are not seen; < 0: unlimited.
  std::int64_t window = -1;
  /// > 0: scores are soft_cap·tanh(score / soft_cap).
  double soft_cap = 0.0;
  /// Dropout on probabilities: element kept iff philox(key, (sample, head, query, key / 4))[key % 4] is ≥ p; `head` is
  /// logical.
  double dropout = 0.0;
  PhiloxKey dropout_key{};
  std::int64_t first_head = 0;
};

/// Sequences in a token list: row range of sequence i is [starts[i], starts[i+1]); for dropout, sample[i] is the global
/// sample number of sequence i and first_position[i] the place of its first row in that sample (both may be empty
/// without dropout). key_starts: same for keys; empty = equal to starts.
struct SequenceRanges {
  std::span<const std::int64_t> starts;
  std::span<const std::int64_t> key_starts;
  std::span<const std::int64_t> sample;
  std::span<const std::int64_t> first_position;
};

/// o[T,Hq,E] = softmax(scale·q·kᵀ + mask)·v, lse[T,Hq] = log-sum-exp of each row (fp32, or fp64 with fp64 input).
/// q, k, v, o and their gradients have one dtype: float32, float64 (the oracle), bfloat16 or float16. 16-bit values are
/// widened when they are packed, everything between is the float32 kernel, and results are rounded once at the end.
/// q [T,Hq,D], k [Tk,Hk,D], v [Tk,Hk,E]: any token and head strides, last stride 1. Key blocks in fixed order from key
/// 0 of the sequence: a row's bits do not depend on the other rows. Level 0.
void attention_forward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                       ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView o, TensorView lse);

/// dq, dk, dv are written (not added to); strides free.
void attention_backward(Executor& exec, const AttentionParams& params, const SequenceRanges& sequences,
                        ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView o, ConstTensorView lse,
                        ConstTensorView d_o, TensorView dq, TensorView dk, TensorView dv);

}  // namespace megatron::kernels
