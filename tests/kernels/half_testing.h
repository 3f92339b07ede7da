// Kernels on 16-bit tensors against the same kernels in float32: one computation on both, equal to the last bit once
// the float32 results are rounded.
#pragma once

#include <limits>

#include "base/float16.h"
#include "kernel_testing.h"

namespace megatron::kernels {

/// Makes and reads the tensors of one computation: of type T, or (`wide`) float32 with the values that T holds.
template <typename T>
struct Twin {
  using Element = T;
  bool wide;

  DType dtype() const { return wide ? DType::float32 : DTypeOf<T>::value; }
  static double stored(double value) { return static_cast<double>(static_cast<float>(T(static_cast<float>(value)))); }

  Tensor made(Executor& exec, const Shape& shape, const std::function<double(std::int64_t)>& f,
              std::int64_t padding = 0) const {
    if (wide)
      return make_tensor<float>(
          exec, shape, [&](std::int64_t i) { return stored(f(i)); }, padding);
    return make_tensor<T>(exec, shape, f, padding);
  }
  Tensor random(Executor& exec, const Shape& shape, std::uint32_t stream, std::int64_t padding = 0,
                double scale = 1) const {
    return made(
        exec, shape, [&](std::int64_t i) { return scale * static_cast<double>(random_value(stream, i)); }, padding);
  }
  Tensor empty(Executor& exec, const Shape& shape) const { return exec.empty(shape, dtype()); }

  /// Appends the values of t, rounded to T where they are not yet.
  void read(std::vector<float>& to, const Tensor& t) const {
    if (wide)
      for (const float value : values<float>(t)) to.push_back(static_cast<float>(T(value)));
    else
      for (const T value : values<T>(t)) to.push_back(static_cast<float>(value));
  }
  /// What other kernels will read of t: in `wide` tensors, the rounded values.
  void round(Tensor& t) const {
    if (!wide) return;
    float* data = t.data<float>();
    for (std::int64_t i = 0; i < t.numel(); ++i) data[i] = static_cast<float>(T(data[i]));
  }
};

/// compute(Twin<T>, Executor&) → std::vector<float>, for bfloat16 and float16, with every instruction set and 1, 2 and
/// 4 threads: the bits of the float32 computation.
template <typename T, typename Compute>
void expect_rounded(const Compute& compute, bool with_scalar = true) {
  TestExecutor reference;
  const std::vector<float> expected = compute(Twin<T>{true}, reference);
  for (const std::string& isa : supported_isas()) {
    if (isa == "scalar" && !with_scalar) continue;
    use_isa(isa);
    for (const int threads : {1, 2, 4}) {
      TestExecutor exec(threads);
      const std::vector<float> got = compute(Twin<T>{false}, exec);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(float)), 0)
            << dtype_name(DTypeOf<T>::value) << " on " << isa << " with " << threads << " threads: element " << i
            << " is " << got[i] << ", not " << expected[i];
    }
  }
  use_isa("");
}

template <typename Compute>
void expect_rounded_results(const Compute& compute, bool with_scalar = true) {
  expect_rounded<BFloat16>(compute, with_scalar);
  expect_rounded<Float16>(compute, with_scalar);
}

}  // namespace megatron::kernels
