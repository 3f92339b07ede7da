// Bodies of the lookup and its gradient: copies and adds of rows, the same for every type and instruction set.
#pragma once

#include <algorithm>

#include "kernels/embedding.h"

namespace megatron::kernels {

template <typename T>
void embedding_forward_body(Executor& exec, ConstTensorView table, const std::int64_t* ids, std::int64_t first_row,
                            TensorView y) noexcept {
  const std::int64_t rows = table.size(0), hidden = y.size(1), tokens = y.size(0);
  const T* from = table.data<T>();
  T* to = y.data<T>();
  constexpr std::int64_t kTokens = 64;
  exec.parallel_for((tokens + kTokens - 1) / kTokens, [&](std::int64_t block, int) {
    for (std::int64_t t = block * kTokens; t < std::min(tokens, (block + 1) * kTokens); ++t) {
      const std::int64_t row = ids[t] - first_row;
      T* out = to + t * y.stride(0);
      if (row >= 0 && row < rows)
        std::copy_n(from + row * table.stride(0), hidden, out);
      else
        std::fill_n(out, hidden, T{0});
    }
  });
}

// Tasks are column blocks, so that each table row gets its tokens in ascending order without atomics.
template <typename T>
void embedding_backward_body(Executor& exec, ConstTensorView dy, const std::int64_t* ids, std::int64_t first_row,
                             TensorView table_grad) noexcept {
  const std::int64_t rows = table_grad.size(0), hidden = dy.size(1), tokens = dy.size(0);
  const T* from = dy.data<T>();
  T* to = table_grad.data<T>();
  constexpr std::int64_t kColumns = 64;
  exec.parallel_for((hidden + kColumns - 1) / kColumns, [&](std::int64_t block, int) {
    const std::int64_t begin = block * kColumns, end = std::min(hidden, begin + kColumns);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t row = ids[t] - first_row;
      if (row < 0 || row >= rows) continue;
      const T* in = from + t * dy.stride(0);
      T* out = to + row * table_grad.stride(0);
      for (std::int64_t h = begin; h < end; ++h) out[h] += in[h];
    }
  });
}

}  // namespace megatron::kernels
