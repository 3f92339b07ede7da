#include "kernels/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/initialize.h"

namespace megatron::kernels {

namespace {
double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Runs `work` for about the budget, after one run that warms caches and scratch.
template <typename Work>
MeasuredRate measure(double flops, double seconds_budget, const Work& work) {
  work();
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> seconds;
  while (seconds.size() < 3 || seconds_since(start) < seconds_budget) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds.push_back(std::max(seconds_since(begin), 1e-9));
  }
  std::sort(seconds.begin(), seconds.end());
  MeasuredRate rate;
  rate.repetitions = static_cast<std::int64_t>(seconds.size());
  rate.median_seconds = seconds[seconds.size() / 2];
  rate.best_gflops = flops / seconds.front() / 1e9;
  rate.median_gflops = flops / rate.median_seconds / 1e9;
  return rate;
}

Tensor filled(Executor& exec, const Shape& shape) {
  Tensor t = exec.empty(shape, DType::float32);
  const std::int64_t size = shape.numel();
  fill_uniform(exec, make_philox_key(1, RandomPurpose::test, 0), 1, 0, 0, size, t.view().reshape({1, size}));
  return t;
}

struct AttentionOperands {
  std::vector<std::int64_t> starts;
  Tensor q, k, v, o, lse;
  AttentionParams params;

  AttentionOperands(Executor& exec, const AttentionShape& shape) {
    for (std::int64_t s = 0; s <= shape.sequences; ++s) starts.push_back(s * shape.tokens);
    const std::int64_t rows = shape.sequences * shape.tokens;
    q = filled(exec, {rows, shape.heads, shape.head_size});
    k = filled(exec, {rows, shape.key_heads, shape.head_size});
    v = filled(exec, {rows, shape.key_heads, shape.head_size});
    o = filled(exec, {rows, shape.heads, shape.head_size});
    lse = exec.empty({rows, shape.heads}, DType::float32);
    params.scale = 0.125;
    params.causal = shape.causal;
  }
  SequenceRanges ranges() const { return {starts, {}, {}, {}}; }
  void forward(Executor& exec) { attention_forward(exec, params, ranges(), q, k, v, o, lse); }
};

// FLOPs that one run of `work` counts.
template <typename Work>
double counted_flops(Executor& exec, const Work& work) {
  const std::int64_t before = exec.counters().attention_flops;
  work();
  return static_cast<double>(exec.counters().attention_flops - before);
}
}  // namespace

double measure_matmul_peak(Executor& exec, double seconds_budget) {
  if (exec.is_meta()) return 0;
  // A small product first: it tells which size fits the budget.
  const double rate =
      measure_matmul(exec, 512, 512, 512, Transpose::no, Transpose::no, 0.05 * seconds_budget).best_gflops;
  std::int64_t n = 2048;
  while (n > 512 && 4 * 2e-9 * static_cast<double>(n * n * n) / rate > 0.9 * seconds_budget) n /= 2;
  return std::max(rate, measure_matmul(exec, n, n, n, Transpose::no, Transpose::no, 0.8 * seconds_budget).best_gflops);
}

MeasuredRate measure_matmul(Executor& exec, std::int64_t m, std::int64_t n, std::int64_t k, Transpose transpose_a,
                            Transpose transpose_b, double seconds_budget) {
  if (exec.is_meta()) return {};
  const bool ta = transpose_a == Transpose::yes, tb = transpose_b == Transpose::yes;
  const Tensor a = filled(exec, ta ? Shape{k, m} : Shape{m, k}), b = filled(exec, tb ? Shape{n, k} : Shape{k, n});
  Tensor c = filled(exec, {m, n});
  return measure(2.0 * static_cast<double>(m * n * k), seconds_budget,
                 [&] { matmul(exec, a, transpose_a, b, transpose_b, c); });
}

MeasuredRate measure_attention_forward(Executor& exec, const AttentionShape& shape, double seconds_budget) {
  if (exec.is_meta()) return {};
  AttentionOperands x(exec, shape);
  const auto work = [&] { x.forward(exec); };
  return measure(counted_flops(exec, work), seconds_budget, work);
}

MeasuredRate measure_attention_backward(Executor& exec, const AttentionShape& shape, double seconds_budget) {
  if (exec.is_meta()) return {};
  AttentionOperands x(exec, shape);
  x.forward(exec);
  const Tensor d_o = filled(exec, x.o.shape());
  Tensor dq = filled(exec, x.q.shape()), dk = filled(exec, x.k.shape()), dv = filled(exec, x.v.shape());
  const auto work = [&] { attention_backward(exec, x.params, x.ranges(), x.q, x.k, x.v, x.o, x.lse, d_o, dq, dk, dv); };
  return measure(counted_flops(exec, work), seconds_budget, work);
}

}  // namespace megatron::kernels
