#include "kernels/ref/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace megatron::kernels::ref {

template <typename T>
void row_max(ConstTensorView logits, std::int64_t valid, TensorView row_max) {
  for (std::int64_t t = 0; t < logits.size(0); ++t) {
    const T* row = logits.data<T>() + t * logits.stride(0);
    T best = -std::numeric_limits<T>::infinity();
    for (std::int64_t v = 0; v < valid; ++v) best = std::max(best, row[v]);
    row_max.data<T>()[t] = best;
  }
}

template <typename T>
void softmax_statistics(ConstTensorView logits, std::int64_t valid, ConstTensorView max, const std::int64_t* labels,
                        std::int64_t first_column, TensorView sum_exp, TensorView target) {
  for (std::int64_t t = 0; t < logits.size(0); ++t) {
    const T* row = logits.data<T>() + t * logits.stride(0);
    const T top = max.data<T>()[t];
    double sum = 0;
    for (std::int64_t v = 0; v < valid; ++v) sum += std::exp(static_cast<double>(row[v] - top));
    sum_exp.data<T>()[t] = static_cast<T>(sum);
    const std::int64_t column = labels[t] - first_column;
    target.data<T>()[t] = column >= 0 && column < valid ? row[column] - top : T{0};
  }
}

template <typename T>
void softmax_gradient_in_place(TensorView logits, std::int64_t valid, ConstTensorView max, ConstTensorView sum_exp,
                               const std::int64_t* labels, std::int64_t first_column, ConstTensorView seed) {
  for (std::int64_t t = 0; t < logits.size(0); ++t) {
    T* row = logits.data<T>() + t * logits.stride(0);
    const T factor = seed.data<T>()[t];
    if (factor == 0) {
      std::fill_n(row, logits.size(1), T{0});
      continue;
    }
    const T top = max.data<T>()[t];
    const T scale = factor / sum_exp.data<T>()[t];
    for (std::int64_t v = 0; v < valid; ++v) row[v] = scale * std::exp(row[v] - top);
    std::fill(row + valid, row + logits.size(1), T{0});
    const std::int64_t column = labels[t] - first_column;
    if (column >= 0 && column < valid) row[column] -= factor;
  }
}

template void row_max<float>(ConstTensorView, std::int64_t, TensorView);
template void row_max<double>(ConstTensorView, std::int64_t, TensorView);
template void softmax_statistics<float>(ConstTensorView, std::int64_t, ConstTensorView, const std::int64_t*,
                                        std::int64_t, TensorView, TensorView);
template void softmax_statistics<double>(ConstTensorView, std::int64_t, ConstTensorView, const std::int64_t*,
                                         std::int64_t, TensorView, TensorView);
template void softmax_gradient_in_place<float>(TensorView, std::int64_t, ConstTensorView, ConstTensorView,
                                               const std::int64_t*, std::int64_t, ConstTensorView);
template void softmax_gradient_in_place<double>(TensorView, std::int64_t, ConstTensorView, ConstTensorView,
                                                const std::int64_t*, std::int64_t, ConstTensorView);

}  // namespace megatron::kernels::ref
