// What the kernel tests share: executors, tensors from functions, comparison with the double oracle, runs on every
// instruction set and number of threads.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/executor.h"
#include "kernels/isa.h"

namespace megatron::kernels {

/// An executor with its own allocator.
struct TestExecutor : Executor {
  explicit TestExecutor(int threads = 1, Device device = Device::cpu)
      : Executor(tensor::Allocator::create(device), threads, 100) {}
};

/// Repeatable numbers; `stream` tells tensors apart.
inline float random_value(std::uint32_t stream, std::int64_t index) {
  const auto words = philox4x32({stream, 77}, {static_cast<std::uint32_t>(index / 4), 0, 0, 0});
  return 2 * uniform_from_bits(words[static_cast<std::size_t>(index % 4)]) - 1;
}

/// A tensor whose rows (last dim) are `padding` elements apart: a view that is not dense. Values from f(index).
template <typename T>
Tensor make_tensor(Executor& exec, const Shape& shape, const std::function<double(std::int64_t)>& f,
                   std::int64_t padding = 0) {
  Shape padded = shape;
  padded[-1] += padding;
  Tensor t = exec.empty(padded, DTypeOf<T>::value);
  if (!exec.is_meta()) std::fill_n(t.data<T>(), t.numel(), static_cast<T>(-77));
  Tensor view = t.slice(shape.num_dims() - 1, 0, shape[-1]);
  if (exec.is_meta() || shape.numel() == 0) return view;
  const std::int64_t rows = shape.numel() / shape[-1];
  T* data = view.data<T>();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < shape[-1]; ++c) data[r * padded[-1] + c] = static_cast<T>(f(r * shape[-1] + c));
  return view;
}

template <typename T>
Tensor random_tensor(Executor& exec, const Shape& shape, std::uint32_t stream, std::int64_t padding = 0,
                     double scale = 1) {
  return make_tensor<T>(
      exec, shape, [&](std::int64_t i) { return scale * static_cast<double>(random_value(stream, i)); }, padding);
}

/// Elements in logical order; rows may be strided in any dim.
template <typename T>
std::vector<T> values(const Tensor& t) {
  std::vector<T> result;
  const ConstTensorView view = t.view_const();
  std::function<void(int, std::int64_t)> visit = [&](int dim, std::int64_t offset) {
    if (dim == view.num_dims()) {
      result.push_back(view.data<T>()[offset]);
      return;
    }
    for (std::int64_t i = 0; i < view.size(dim); ++i) visit(dim + 1, offset + i * view.stride(dim));
  };
  visit(0, 0);
  return result;
}

/// √(Σ(a−b)² / Σb²), or of a alone where b is zero.
template <typename A, typename B>
double relative_rms(const std::vector<A>& a, const std::vector<B>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    error += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(error / (norm > 0 ? norm : 1));
}

template <typename A, typename B>
double largest_error(const std::vector<A>& a, const std::vector<B>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    error = std::max(error, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return error;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Runs `compute` on every instruction set with 1 and 3 threads and expects the same bits each time; returns them.
/// `with_scalar`: on the portable fallback too, which is slow.
inline std::vector<float> same_everywhere(const std::function<std::vector<float>(Executor&)>& compute,
                                          bool with_scalar = true) {
  std::vector<float> first;
  for (const std::string& isa : supported_isas()) {
    if (isa == "scalar" && !with_scalar && !first.empty()) continue;
    use_isa(isa);
    for (const int threads : {1, 3}) {
      TestExecutor exec(threads);
      const std::vector<float> result = compute(exec);
      if (first.empty()) first = result;
      EXPECT_TRUE(same_bits(first, result)) << "on " << isa << " with " << threads << " threads";
    }
  }
  use_isa("");
  return first;
}

inline void append(std::vector<float>& to, const std::vector<float>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace megatron::kernels
