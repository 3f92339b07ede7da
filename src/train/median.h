// The middle of measured times.
#pragma once

#include <algorithm>
#include <vector>

namespace megatron::train {

/// The value with as many others below as above it, of an even number the upper of the two; 0 of none.
inline double upper_median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace megatron::train
