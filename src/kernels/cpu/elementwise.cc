#include "kernels/cpu/elementwise.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"

#ifndef MEGATRON_KERNELS_CPU_ELEMENTWISE_OPERANDS
#define MEGATRON_KERNELS_CPU_ELEMENTWISE_OPERANDS
namespace megatron::kernels::cpu {
namespace {
struct DropoutRow {
  const float *x, *bias, *residual;  // bias and residual may be null
  float* y;
  std::int64_t width;
  bool drops;
  std::uint32_t threshold;
  float scale;
  PhiloxKey key;
  std::int64_t sample, position, first_feature;
};
}  // namespace
}  // namespace megatron::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

void add_piece(const float* from, float* to, std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    store_valid(hn::Add(load_valid(to + i, valid), load_valid(from + i, valid)), to + i, valid);
  });
}

// The decisions of features [first, first + count) of a row: words of Philox in feature order, the upper 24 bits of
// each. `first` is a multiple of 4; 4·kLanes features per step, the last step may write up to 4·kLanes − 1 words too
// many.
void dropout_words(PhiloxKey key, std::int64_t sample, std::int64_t position, std::int64_t first, std::int64_t count,
                   std::uint32_t* words) {
  const DU du;
  for (std::int64_t i = 0; i < count; i += 4 * kLanes) {
    VU c0 = hn::Set(du, static_cast<std::uint32_t>(sample));
    VU c1 = hn::Set(du, static_cast<std::uint32_t>(sample >> 32));
    VU c2 = hn::Set(du, static_cast<std::uint32_t>(position));
    VU c3 = hn::Iota(du, static_cast<std::uint32_t>((first + i) / 4));
    philox(key, c0, c1, c2, c3);
    store_interleaved(c0, c1, c2, c3, words + i);
  }
}

// y = residual + mask·scale·(x + bias) for one row.
void dropout_row(const DropoutRow& row) {
  constexpr std::int64_t kStep = 256;
  const DI di;
  const hn::Vec<DI> threshold = hn::Set(di, static_cast<std::int32_t>(row.threshold));
  alignas(64) std::uint32_t words[kStep + 64];
  const std::int64_t skew = row.first_feature % 4;
  for (std::int64_t begin = 0; begin < row.width; begin += kStep) {
    const std::int64_t count = HWY_MIN(kStep, row.width - begin);
    if (row.drops)
      dropout_words(row.key, row.sample, row.position, row.first_feature - skew + begin, count + skew, words);
    for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
      const std::int64_t h = begin + i;
      V value = load_valid(row.x + h, valid);
      if (row.bias != nullptr) value = hn::Add(value, load_valid(row.bias + h, valid));
      if (row.drops) {
        const auto bits = hn::ShiftRight<8>(hn::LoadU(DU(), words + skew + i));
        const auto dropped = hn::Lt(hn::BitCast(di, bits), threshold);
        value = hn::IfThenZeroElse(hn::RebindMask(D(), dropped), hn::Mul(value, set(row.scale)));
      }
      if (row.residual != nullptr) value = hn::Add(load_valid(row.residual + h, valid), value);
      store_valid(value, row.y + h, valid);
    });
  }
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/units.h"
#include "kernels/cpu/column_tree.h"
#include "kernels/cpu/parallel_rows.h"
#include "kernels/dropout_mask.h"
#include "kernels/row_walk.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(add_piece);
HWY_EXPORT(dropout_row);

void add_in_place(Executor& exec, ConstTensorView src, TensorView dst) noexcept {
  const float* from = src.data<float>();
  float* to = dst.data<float>();
  RowWalk<2>(src.shape, {src.strides, dst.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(add_piece)(from + at[0], to + at[1], count);
  });
}

void add_bias(Executor& exec, ConstTensorView bias, TensorView y) noexcept {
  parallel_rows(exec, y.size(0), y.size(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      HWY_DYNAMIC_DISPATCH(add_piece)(bias.data<float>(), y.data<float>() + t * y.stride(0), y.size(1));
  });
}

std::int64_t bias_grad_parts(std::int64_t rows, std::int64_t hidden) { return ceil_div(rows, kTokenBlock) * hidden; }

void bias_grad(Executor& exec, ConstTensorView dy, TensorView grad, float* parts) noexcept {
  const std::int64_t rows = dy.size(0), hidden = dy.size(1), blocks = ceil_div(rows, kTokenBlock);
  exec.parallel_for(blocks, [&](std::int64_t block, int) {
    float* part = parts + block * hidden;
    std::fill_n(part, hidden, 0.0F);
    for (std::int64_t t = block * kTokenBlock; t < std::min(rows, (block + 1) * kTokenBlock); ++t)
      HWY_DYNAMIC_DISPATCH(add_piece)(dy.data<float>() + t * dy.stride(0), part, hidden);
  });
  add_tree_of_rows(exec, parts, blocks, hidden, grad.data<float>());
}

void bias_dropout_add(Executor& exec, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                      const DropoutSpec& dropout, RowPositions rows, TensorView y) noexcept {
  DropoutRow first{};
  first.width = x.size(1);
  first.bias = bias.num_dims() == 0 ? nullptr : bias.data<float>();
  first.drops = dropout.probability > 0;
  first.threshold = dropout_threshold(dropout.probability);
  first.scale = static_cast<float>(1.0 / (1.0 - dropout.probability));
  first.key = dropout.key;
  first.first_feature = dropout.first_feature;
  parallel_rows(exec, x.size(0), x.size(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      DropoutRow row = first;
      row.x = x.data<float>() + t * x.stride(0);
      row.residual = residual.num_dims() == 0 ? nullptr : residual.data<float>() + t * residual.stride(0);
      row.y = y.data<float>() + t * y.stride(0);
      if (row.drops) {
        row.sample = rows.sample_index[t];
        row.position = rows.position[t];
      }
      HWY_DYNAMIC_DISPATCH(dropout_row)(row);
    }
  });
}

}  // namespace megatron::kernels::cpu
#endif
