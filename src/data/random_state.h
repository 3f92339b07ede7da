// numpy's legacy random generator, as far as the sample order needs it: RandomState(seed).shuffle of one-dimensional
// arrays. The draws do not depend on the element type.
#pragma once

#include <cstdint>
#include <random>
#include <utility>

namespace megatron::data {

class RandomState {
 public:
  /// Seeds MT19937 as numpy does; 0 ≤ seed < 2³², otherwise ConfigError.
  explicit RandomState(std::uint64_t seed);

  /// Uniform integer in [0, max] by masked rejection.
  std::uint64_t bounded(std::uint64_t max);

  /// Fisher–Yates from the back over [first, first + count). Array: `swap(i, j)`.
  template <typename Array>
  void shuffle(Array& values, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = count - 1; i >= 1; --i)
      values.swap(first + i, first + static_cast<std::int64_t>(bounded(static_cast<std::uint64_t>(i))));
  }

 private:
  std::mt19937 engine_;
};

}  // namespace megatron::data
