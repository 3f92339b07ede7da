// Small point-wise kernels: sums, biases, dropout with residual, copies, column sums.
#pragma once

#include "base/rng.h"
#include "kernels/executor.h"

namespace megatron::kernels {

// float32, float64 (the oracle), bfloat16 and float16. 16-bit operands are widened, computed with in float32 as the
// float32 kernel does, and rounded once to nearest even (float16 beyond its largest value: infinity).

/// dst = src, element by element; shapes equal, any strides (last stride 1); between the four types, rounded once.
void copy(Executor& exec, ConstTensorView src, TensorView dst);
/// dst = 0
void fill_zero(Executor& exec, TensorView dst);
/// dst += src (same shape; same dtype, or one of them float32 and the other 16-bit).
void add_in_place(Executor& exec, ConstTensorView src, TensorView dst);
/// y[T,H] += bias[H] of y's dtype
void add_bias(Executor& exec, ConstTensorView bias, TensorView y);
/// bias_grad[H] += column sums of dy[T,H], over tokens in blocks of 64 added by the canonical tree. Level 0.
/// float32 for 16-bit dy, else of dy's dtype.
void bias_grad(Executor& exec, ConstTensorView dy, TensorView grad);

/// Which logical rows these are: sample_index[t] = global sample number, position[t] = place in that sample. Pointers
/// to T int64 values, null on meta.
struct RowPositions {
  const std::int64_t* sample_index = nullptr;
  const std::int64_t* position = nullptr;
};

/// Dropout as a function of position: element (sample, position, feature) is kept iff the word feature % 4 of
/// philox(key, (sample, position, feature / 4)) is ≥ p; kept values are scaled by 1/(1 − p).
/// `first_feature` is the logical index of column 0.
struct DropoutSpec {
  double probability = 0.0;
  PhiloxKey key{};
  std::int64_t first_feature = 0;
};

/// y = residual + dropout(x + bias). bias may be a null view, residual may be a null view. y may alias x or residual.
/// bias has x's dtype, y that of residual; beside 16-bit x both may be float32 (a residual stream of more precision).
void bias_dropout_add(Executor& exec, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                      const DropoutSpec& dropout, RowPositions rows, TensorView y);
/// dx = dropout mask · dy. dx may alias dy. dx has dy's dtype, or dx is 16-bit and dy float32, or the other way round.
void dropout_backward(Executor& exec, ConstTensorView dy, const DropoutSpec& dropout, RowPositions rows, TensorView dx);

}  // namespace megatron::kernels
