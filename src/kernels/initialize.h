// Initial values as a function of the logical element index, so that every layout starts from the same bits.
#pragma once

#include "base/rng.h"
#include "kernels/executor.h"

namespace megatron::kernels {

/// Local rows [local_row, local_row + rows) of w get the box (row, col) of a logical matrix with `logical_cols`
/// columns: element (r, c) = std·z(index), index = r·logical_cols + c; z = Box–Muller pair (index / 2) of philox(key,
/// (index / 4 low, high, 0, 0)). float32 arithmetic that is the same on every ISA; fp64 w gets the same values.
void fill_normal(Executor& exec, PhiloxKey key, double std, std::int64_t row, std::int64_t col,
                 std::int64_t logical_cols, TensorView w_box);
/// The same with uniform values in [−bound, bound).
void fill_uniform(Executor& exec, PhiloxKey key, double bound, std::int64_t row, std::int64_t col,
                  std::int64_t logical_cols, TensorView w_box);
/// Every element of w becomes `value`, rounded to w's type: float32, float64, bfloat16, float16.
void fill_constant(Executor& exec, double value, TensorView w);
/// Has the system give every page of w (dense) its memory now, on all threads; values stay.
void claim_pages(Executor& exec, TensorView w);

}  // namespace megatron::kernels
