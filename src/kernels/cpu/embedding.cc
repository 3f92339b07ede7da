#include "kernels/cpu/embedding.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

#ifndef MEGATRON_KERNELS_CPU_EMBEDDING_OPERANDS
#define MEGATRON_KERNELS_CPU_EMBEDDING_OPERANDS
namespace megatron::kernels::cpu {
namespace {
// A table of `rows` rows, some columns of it, and as many of the tokens' rows.
struct EmbeddingOperands {
  DType dtype;       // of what is read
  const void* from;  // forward: the table; backward: the tokens
  std::int64_t from_step;
  float* to;  // forward: the tokens; backward: the table
  std::int64_t to_step;
  std::int64_t rows, columns;
};
}  // namespace
}  // namespace megatron::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

void lookup(const EmbeddingOperands& x, const std::int64_t* ids, std::int64_t first_row, std::int64_t begin,
            std::int64_t end) {
  with_type(x.dtype, [&](auto type) HWY_ATTR {
    const auto* table = static_cast<const decltype(type)*>(x.from);
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row = ids[t] - first_row;
      float* out = x.to + t * x.to_step;
      if (row >= 0 && row < x.rows)
        convert(table + row * x.from_step, out, x.columns);
      else
        for (std::int64_t h = 0; h < x.columns; ++h) out[h] = 0;
    }
  });
}

void scatter(const EmbeddingOperands& x, const std::int64_t* ids, std::int64_t first_row, std::int64_t tokens) {
  with_type(x.dtype, [&](auto type) HWY_ATTR {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t row = ids[t] - first_row;
      if (row < 0 || row >= x.rows) continue;
      const auto* in = static_cast<const decltype(type)*>(x.from) + t * x.from_step;
      float* out = x.to + row * x.to_step;
      for_each_vector(x.columns, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
        store_valid(hn::Add(load_valid(out + i, valid), load_valid(in + i, valid)), out + i, valid);
      });
    }
  });
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/units.h"
#include "kernels/cpu/elements.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(lookup);
HWY_EXPORT(scatter);

void embedding_forward(Executor& exec, ConstTensorView table, const std::int64_t* ids, std::int64_t first_row,
                       TensorView y) noexcept {
  constexpr std::int64_t kTokens = 64;
  const EmbeddingOperands operands{table.dtype, table.pointer, table.stride(0), y.data<float>(),
                                   y.stride(0), table.size(0), y.size(1)};
  exec.parallel_for(ceil_div(y.size(0), kTokens), [&](std::int64_t block, int) {
    HWY_DYNAMIC_DISPATCH(lookup)
    (operands, ids, first_row, block * kTokens, std::min(y.size(0), (block + 1) * kTokens));
  });
}

// Tasks are column blocks, so that each table row gets its tokens in ascending order without atomics.
void embedding_backward(Executor& exec, ConstTensorView dy, const std::int64_t* ids, std::int64_t first_row,
                        TensorView table_grad) noexcept {
  constexpr std::int64_t kColumns = 64;
  const std::int64_t hidden = dy.size(1);
  exec.parallel_for(ceil_div(hidden, kColumns), [&](std::int64_t block, int) {
    const std::int64_t begin = block * kColumns;
    HWY_DYNAMIC_DISPATCH(scatter)
    ({dy.dtype, at_element(dy, begin), dy.stride(0), table_grad.data<float>() + begin, table_grad.stride(0),
      table_grad.size(0), std::min(kColumns, hidden - begin)},
     ids, first_row, dy.size(0));
  });
}

}  // namespace megatron::kernels::cpu
#endif
