#include "kernels/cpu/elementwise.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

#ifndef MEGATRON_KERNELS_CPU_ELEMENTWISE_OPERANDS
#define MEGATRON_KERNELS_CPU_ELEMENTWISE_OPERANDS
namespace megatron::kernels::cpu {
namespace {
struct DropoutRow {
  DType x_type, y_type;             // of x and bias, of residual and y
  const void *x, *bias, *residual;  // bias and residual may be null
  void* y;
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

// to += from
void add_piece(DType from_type, const void* from, DType to_type, void* to, std::int64_t count) {
  with_types(from_type, to_type, [&](auto from_tag, auto to_tag) HWY_ATTR {
    const auto* in = static_cast<const decltype(from_tag)*>(from);
    auto* out = static_cast<decltype(to_tag)*>(to);
    for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
      store_valid(hn::Add(load_valid(out + i, valid), load_valid(in + i, valid)), out + i, valid);
    });
  });
}

void convert_piece(DType from_type, const void* from, DType to_type, void* to, std::int64_t count) {
  with_type(from_type, [&](auto from_tag) HWY_ATTR {
    with_type(to_type, [&](auto to_tag) HWY_ATTR {
      convert(static_cast<const decltype(from_tag)*>(from), static_cast<decltype(to_tag)*>(to), count);
    });
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
template <typename X, typename Y>
void dropout_row_of(const DropoutRow& row) {
  constexpr std::int64_t kStep = 256;
  const DI di;
  const hn::Vec<DI> threshold = hn::Set(di, static_cast<std::int32_t>(row.threshold));
  const X *x = static_cast<const X*>(row.x), *bias = static_cast<const X*>(row.bias);
  const Y* residual = static_cast<const Y*>(row.residual);
  Y* y = static_cast<Y*>(row.y);
  alignas(64) std::uint32_t words[kStep + 64];
  const std::int64_t skew = row.first_feature % 4;
  for (std::int64_t begin = 0; begin < row.width; begin += kStep) {
    const std::int64_t count = HWY_MIN(kStep, row.width - begin);
    if (row.drops)
      dropout_words(row.key, row.sample, row.position, row.first_feature - skew + begin, count + skew, words);
    for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
      const std::int64_t h = begin + i;
      V value = load_valid(x + h, valid);
      if (bias != nullptr) value = hn::Add(value, load_valid(bias + h, valid));
      if (row.drops) {
        const auto bits = hn::ShiftRight<8>(hn::LoadU(DU(), words + skew + i));
        const auto dropped = hn::Lt(hn::BitCast(di, bits), threshold);
        value = hn::IfThenZeroElse(hn::RebindMask(D(), dropped), hn::Mul(value, set(row.scale)));
      }
      if (residual != nullptr) value = hn::Add(load_valid(residual + h, valid), value);
      store_valid(value, y + h, valid);
    });
  }
}

void dropout_row(const DropoutRow& row) {
  with_types(row.x_type, row.y_type, [&](auto x, auto y) HWY_ATTR { dropout_row_of<decltype(x), decltype(y)>(row); });
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/units.h"
#include "kernels/cpu/column_tree.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/parallel_rows.h"
#include "kernels/dropout_mask.h"
#include "kernels/row_walk.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(add_piece);
HWY_EXPORT(convert_piece);
HWY_EXPORT(dropout_row);

void convert(Executor& exec, ConstTensorView src, TensorView dst) noexcept {
  RowWalk<2>(src.shape, {src.strides, dst.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(convert_piece)
    (src.dtype, at_element(src, at[0]), dst.dtype, at_element(dst, at[1]), count);
  });
}

void add_in_place(Executor& exec, ConstTensorView src, TensorView dst) noexcept {
  RowWalk<2>(src.shape, {src.strides, dst.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    HWY_DYNAMIC_DISPATCH(add_piece)(src.dtype, at_element(src, at[0]), dst.dtype, at_element(dst, at[1]), count);
  });
}

void add_bias(Executor& exec, ConstTensorView bias, TensorView y) noexcept {
  parallel_rows(exec, y.size(0), y.size(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      HWY_DYNAMIC_DISPATCH(add_piece)(bias.dtype, bias.pointer, y.dtype, at_element(y, t * y.stride(0)), y.size(1));
  });
}

std::int64_t bias_grad_parts(std::int64_t rows, std::int64_t hidden) { return ceil_div(rows, kTokenBlock) * hidden; }

void bias_grad(Executor& exec, ConstTensorView dy, TensorView grad, float* parts) noexcept {
  const std::int64_t rows = dy.size(0), hidden = dy.size(1), blocks = ceil_div(rows, kTokenBlock);
  exec.parallel_for(blocks, [&](std::int64_t block, int) {
    float* part = parts + block * hidden;
    std::fill_n(part, hidden, 0.0F);
    for (std::int64_t t = block * kTokenBlock; t < std::min(rows, (block + 1) * kTokenBlock); ++t)
      HWY_DYNAMIC_DISPATCH(add_piece)(dy.dtype, at_element(dy, t * dy.stride(0)), DType::float32, part, hidden);
  });
  add_tree_of_rows(exec, parts, blocks, hidden, grad.data<float>());
}

void bias_dropout_add(Executor& exec, ConstTensorView x, ConstTensorView bias, ConstTensorView residual,
                      const DropoutSpec& dropout, RowPositions rows, TensorView y) noexcept {
  DropoutRow first{};
  first.x_type = x.dtype;
  first.y_type = y.dtype;
  first.width = x.size(1);
  first.bias = bias.pointer;
  first.drops = dropout.probability > 0;
  first.threshold = dropout_threshold(dropout.probability);
  first.scale = static_cast<float>(1.0 / (1.0 - dropout.probability));
  first.key = dropout.key;
  first.first_feature = dropout.first_feature;
  parallel_rows(exec, x.size(0), x.size(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      DropoutRow row = first;
      row.x = at_element(x, t * x.stride(0));
      if (residual.num_dims() != 0) row.residual = at_element(residual, t * residual.stride(0));
      row.y = at_element(y, t * y.stride(0));
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
