// Initial values of the oracle.
#pragma once

#include "kernels/initialize.h"

namespace megatron::kernels::ref {

/// The standard normal number of a logical element.
double normal_at(PhiloxKey key, std::int64_t index);
/// The number in [−1, 1) of a logical element.
float uniform_at(PhiloxKey key, std::int64_t index);

template <typename T>
void fill_normal(PhiloxKey key, double std, std::int64_t row, std::int64_t col, std::int64_t logical_cols,
                 TensorView w);
template <typename T>
void fill_uniform(PhiloxKey key, double bound, std::int64_t row, std::int64_t col, std::int64_t logical_cols,
                  TensorView w);

}  // namespace megatron::kernels::ref
