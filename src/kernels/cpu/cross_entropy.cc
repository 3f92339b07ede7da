#include "kernels/cpu/cross_entropy.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

float max_of_row(const float* row, std::int64_t count) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  V best[4] = {set(kLowest), set(kLowest), set(kLowest), set(kLowest)};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) best[j] = hn::Max(load(row + i + j * kLanes), best[j]);
  alignas(64) float lanes[kLanes];
  hn::Store(hn::Max(hn::Max(best[0], best[1]), hn::Max(best[2], best[3])), D(), lanes);
  float result = kLowest;
  for (std::int64_t j = 0; j < kLanes; ++j) result = HWY_MAX(result, lanes[j]);
  for (; i < count; ++i) result = HWY_MAX(result, row[i]);
  return result;
}

float sum_of_exponentials(const float* row, std::int64_t count, float max) {
  LaneSum sum;
  const V top = set(max);
  for_each_lane_group(count, [&](std::int64_t i, auto part, std::int64_t valid) HWY_ATTR {
    const V value = exp(hn::Sub(load_valid(row + i, valid), top));
    sum.add(part, valid == kLanes ? value : first_lanes(value, valid));
  });
  return static_cast<float>(sum.total());
}

void scaled_exponentials(float* row, std::int64_t count, float max, float scale) {
  const V top = set(max), factor = set(scale);
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    store_valid(hn::Mul(exp(hn::Sub(load_valid(row + i, valid), top)), factor), row + i, valid);
  });
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/parallel_rows.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(max_of_row);
HWY_EXPORT(sum_of_exponentials);
HWY_EXPORT(scaled_exponentials);

void row_max(Executor& exec, ConstTensorView logits, std::int64_t valid, TensorView row_max) noexcept {
  parallel_rows(exec, logits.size(0), valid, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      row_max.data<float>()[t] = HWY_DYNAMIC_DISPATCH(max_of_row)(logits.data<float>() + t * logits.stride(0), valid);
  });
}

void softmax_statistics(Executor& exec, ConstTensorView logits, std::int64_t valid, ConstTensorView max,
                        const std::int64_t* labels, std::int64_t first_column, TensorView sum_exp,
                        TensorView target) noexcept {
  parallel_rows(exec, logits.size(0), valid, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* row = logits.data<float>() + t * logits.stride(0);
      const float top = max.data<float>()[t];
      sum_exp.data<float>()[t] = HWY_DYNAMIC_DISPATCH(sum_of_exponentials)(row, valid, top);
      const std::int64_t column = labels[t] - first_column;
      target.data<float>()[t] = column >= 0 && column < valid ? row[column] - top : 0.0F;
    }
  });
}

void softmax_gradient_in_place(Executor& exec, TensorView logits, std::int64_t valid, ConstTensorView max,
                               ConstTensorView sum_exp, const std::int64_t* labels, std::int64_t first_column,
                               ConstTensorView seed) noexcept {
  parallel_rows(exec, logits.size(0), logits.size(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* row = logits.data<float>() + t * logits.stride(0);
      const float factor = seed.data<float>()[t];
      if (factor == 0) {  // a masked row must not spread what it holds, not even NaN
        std::fill_n(row, logits.size(1), 0.0F);
        continue;
      }
      HWY_DYNAMIC_DISPATCH(scaled_exponentials)(row, valid, max.data<float>()[t], factor / sum_exp.data<float>()[t]);
      std::fill(row + valid, row + logits.size(1), 0.0F);
      const std::int64_t column = labels[t] - first_column;
      if (column >= 0 && column < valid) row[column] -= factor;
    }
  });
}

}  // namespace megatron::kernels::cpu
#endif
