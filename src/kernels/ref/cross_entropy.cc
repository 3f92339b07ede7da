#include "kernels/ref/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace megatron::kernels::ref {

void row_max(ConstTensorView logits, std::int64_t valid, TensorView row_max) {
  for (std::int64_t t = 0; t < logits.size(0); ++t) {
    const double* row = logits.data<double>() + t * logits.stride(0);
    double best = -std::numeric_limits<double>::infinity();
    for (std::int64_t v = 0; v < valid; ++v) best = std::max(best, row[v]);
    row_max.data<double>()[t] = best;
  }
}

void softmax_statistics(ConstTensorView logits, std::int64_t valid, ConstTensorView max, const std::int64_t* labels,
                        std::int64_t first_column, TensorView sum_exp, TensorView target) {
  for (std::int64_t t = 0; t < logits.size(0); ++t) {
    const double* row = logits.data<double>() + t * logits.stride(0);
    const double top = max.data<double>()[t];
    double sum = 0;
    for (std::int64_t v = 0; v < valid; ++v) sum += std::exp((row[v] - top));
    sum_exp.data<double>()[t] = (sum);
    const std::int64_t column = labels[t] - first_column;
    target.data<double>()[t] = column >= 0 && column < valid ? row[column] - top : 0.0;
  }
}

void softmax_gradient_in_place(TensorView logits, std::int64_t valid, ConstTensorView max, ConstTensorView sum_exp,
                               const std::int64_t* labels, std::int64_t first_column, ConstTensorView seed) {
  for (std::int64_t t = 0; t < logits.size(0); ++t) {
    double* row = logits.data<double>() + t * logits.stride(0);
    const double factor = seed.data<double>()[t];
    if (factor == 0) {
      std::fill_n(row, logits.size(1), 0.0);
      continue;
    }
    const double top = max.data<double>()[t];
    const double scale = factor / sum_exp.data<double>()[t];
    for (std::int64_t v = 0; v < valid; ++v) row[v] = scale * std::exp(row[v] - top);
    std::fill(row + valid, row + logits.size(1), 0.0);
    const std::int64_t column = labels[t] - first_column;
    if (column >= 0 && column < valid) row[column] -= factor;
  }
}

}  // namespace megatron::kernels::ref
