#include "kernels/cpu/cross_entropy.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

template <typename T>
float max_of_row_of(const T* row, std::int64_t count) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  V best[4] = {set(kLowest), set(kLowest), set(kLowest), set(kLowest)};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) best[j] = hn::Max(load(row + i + j * kLanes), best[j]);
  alignas(64) float lanes[kLanes];
  hn::Store(hn::Max(hn::Max(best[0], best[1]), hn::Max(best[2], best[3])), D(), lanes);
  float result = kLowest;
  for (std::int64_t j = 0; j < kLanes; ++j) result = HWY_MAX(result, lanes[j]);
  for (; i < count; ++i) result = HWY_MAX(result, static_cast<float>(row[i]));
  return result;
}

float max_of_row(DType dtype, const void* row, std::int64_t count) {
  float result = 0;
  with_type(dtype, [&](auto type) HWY_ATTR { result = max_of_row_of(static_cast<const decltype(type)*>(row), count); });
  return result;
}

template <typename T>
float sum_of_exponentials_of(const T* row, std::int64_t count, float max) {
  LaneSum sum;
  const V top = set(max);
  for_each_lane_group(count, [&](std::int64_t i, auto part, std::int64_t valid) HWY_ATTR {
    const V value = exp(hn::Sub(load_valid(row + i, valid), top));
    sum.add(part, valid == kLanes ? value : first_lanes(value, valid));
  });
  return static_cast<float>(sum.total());
}

// Σ e^(x − max), and in `target` the element `column` − max (0 if column < 0).
float statistics_of_row(DType dtype, const void* data, std::int64_t count, float max, std::int64_t column,
                        float& target) {
  float sum = 0;
  with_type(dtype, [&](auto type) HWY_ATTR {
    const auto* row = static_cast<const decltype(type)*>(data);
    sum = sum_of_exponentials_of(row, count, max);
    target = column < 0 ? 0.0F : static_cast<float>(row[column]) - max;
  });
  return sum;
}

// row = scale·e^(row − max), less `factor` at `column` (if that is not negative); rounded once.
template <typename T>
void gradient_of_row_of(T* row, std::int64_t count, float max, float scale, std::int64_t column, float factor) {
  const V top = set(max), multiplier = set(scale);
  const T label = column < 0 ? T{} : row[column];
  const auto value = [&](V x) HWY_ATTR { return hn::Mul(exp(hn::Sub(x, top)), multiplier); };
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid)
                             HWY_ATTR { store_valid(value(load_valid(row + i, valid)), row + i, valid); });
  if (column >= 0) row[column] = T(hn::GetLane(value(set(static_cast<float>(label)))) - factor);
}

// A row of `width` columns, the first `valid` of them meant; a masked one must not spread what it holds, not even NaN.
void gradient_of_row(DType dtype, void* data, std::int64_t width, std::int64_t valid, float max, float sum,
                     std::int64_t column, float factor) {
  with_type(dtype, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    T* row = static_cast<T*>(data);
    if (factor != 0) gradient_of_row_of(row, valid, max, factor / sum, column, factor);
    for (std::int64_t i = factor == 0 ? 0 : valid; i < width; ++i) row[i] = T(0.0F);
  });
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/elements.h"
#include "kernels/cpu/parallel_rows.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(max_of_row);
HWY_EXPORT(statistics_of_row);
HWY_EXPORT(gradient_of_row);

namespace {
// The label's column of this shard; −1 if it lies elsewhere.
std::int64_t label_column(std::int64_t label, std::int64_t first_column, std::int64_t valid) {
  const std::int64_t column = label - first_column;
  return column >= 0 && column < valid ? column : -1;
}
}  // namespace

void row_max(Executor& exec, ConstTensorView logits, std::int64_t valid, TensorView row_max) noexcept {
  parallel_rows(exec, logits.size(0), valid, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      row_max.data<float>()[t] =
          HWY_DYNAMIC_DISPATCH(max_of_row)(logits.dtype, at_element(logits, t * logits.stride(0)), valid);
  });
}

void softmax_statistics(Executor& exec, ConstTensorView logits, std::int64_t valid, ConstTensorView max,
                        const std::int64_t* labels, std::int64_t first_column, TensorView sum_exp,
                        TensorView target) noexcept {
  parallel_rows(exec, logits.size(0), valid, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      sum_exp.data<float>()[t] = HWY_DYNAMIC_DISPATCH(statistics_of_row)(
          logits.dtype, at_element(logits, t * logits.stride(0)), valid, max.data<float>()[t],
          label_column(labels[t], first_column, valid), target.data<float>()[t]);
  });
}

void softmax_gradient_in_place(Executor& exec, TensorView logits, std::int64_t valid, ConstTensorView max,
                               ConstTensorView sum_exp, const std::int64_t* labels, std::int64_t first_column,
                               ConstTensorView seed) noexcept {
  parallel_rows(exec, logits.size(0), logits.size(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) HWY_DYNAMIC_DISPATCH(gradient_of_row)
    (logits.dtype, at_element(logits, t * logits.stride(0)), logits.size(1), valid, max.data<float>()[t],
     sum_exp.data<float>()[t], label_column(labels[t], first_column, valid), seed.data<float>()[t]);
  });
}

}  // namespace megatron::kernels::cpu
#endif
