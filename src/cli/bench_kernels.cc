// megatron bench matmul|attention|optimizer: single kernels.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/bench.h"
#include "kernels/attention.h"
#include "kernels/bandwidth.h"
#include "kernels/initialize.h"
#include "kernels/matmul.h"
#include "kernels/optimizer_step.h"
#include "kernels/peak.h"
#include "train/machine.h"

namespace megatron::cli {
namespace {

kernels::Executor make_executor(std::int64_t threads) {
  return {tensor::Allocator::create(Device::cpu), static_cast<int>(threads)};
}

Tensor random_tensor(kernels::Executor& exec, const Shape& shape, std::uint64_t stream) {
  Tensor tensor = exec.empty(shape, DType::float32);
  kernels::fill_uniform(exec, make_philox_key(stream, RandomPurpose::test, 0), 1.0, 0, 0, shape.numel(),
                        tensor.view().reshape({1, shape.numel()}));
  return tensor;
}

/// Median seconds of `body` over at least five runs and half a second.
double median_seconds(const std::function<void()>& body) { return kernels::time_repeated(0.5, 5, body).median_seconds; }

}  // namespace

int bench_matmul(Arguments args) {
  BenchNumbers numbers(args,
                       {{"--m", 1024}, {"--n", 3072}, {"--k", 768}, {"--threads-per-rank", train::usable_cores()}});
  const std::int64_t m = numbers.at("--m"), n = numbers.at("--n"), k = numbers.at("--k");
  kernels::Executor exec = make_executor(numbers.at("--threads-per-rank"));
  const Tensor x_MK = random_tensor(exec, {m, k}, 1), w_NK = random_tensor(exec, {n, k}, 2);
  const Tensor w_KN = random_tensor(exec, {k, n}, 3), dy_KM = random_tensor(exec, {k, m}, 4);
  Tensor y_MN = exec.empty({m, n}, DType::float32);
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  using kernels::Transpose;
  const double forward =
      median_seconds([&] { kernels::matmul(exec, x_MK, Transpose::no, w_NK, Transpose::yes, y_MN); });
  const double input = median_seconds([&] { kernels::matmul(exec, x_MK, Transpose::no, w_KN, Transpose::no, y_MN); });
  const double weight =
      median_seconds([&] { kernels::matmul(exec, dy_KM, Transpose::yes, w_KN, Transpose::no, y_MN, true); });
  print_bench(nlohmann::ordered_json{{"m", m},
                                     {"n", n},
                                     {"k", k},
                                     {"threads", exec.num_threads()},
                                     {"x_wT_flops_per_second", flops / forward},
                                     {"dy_w_flops_per_second", flops / input},
                                     {"dyT_x_accumulate_flops_per_second", flops / weight},
                                     {"matmul_peak_flops_per_second", kernels::matmul_peak_within(exec, 1.0)}},
              numbers.json());
  return 0;
}

int bench_attention(Arguments args) {
  BenchNumbers numbers(args, {{"--seq-length", 1024},
                              {"--heads", 12},
                              {"--groups", 12},
                              {"--head-size", 64},
                              {"--batch", 1},
                              {"--threads-per-rank", train::usable_cores()}});
  const std::int64_t s = numbers.at("--seq-length"), h = numbers.at("--heads"), g = numbers.at("--groups");
  const std::int64_t d = numbers.at("--head-size"), b = numbers.at("--batch"), t = b * s;
  if (h % g != 0) throw ConfigError(str_cat("--heads ", h, ", --groups ", g, ": heads must be a multiple of groups"));
  kernels::Executor exec = make_executor(numbers.at("--threads-per-rank"));
  const Tensor q = random_tensor(exec, {t, h, d}, 1), k = random_tensor(exec, {t, g, d}, 2);
  const Tensor v = random_tensor(exec, {t, g, d}, 3), d_o = random_tensor(exec, {t, h, d}, 4);
  Tensor o = exec.empty({t, h, d}, DType::float32), lse = exec.empty({t, h}, DType::float32);
  Tensor dq = exec.empty({t, h, d}, DType::float32), dk = exec.empty({t, g, d}, DType::float32);
  Tensor dv = exec.empty({t, g, d}, DType::float32);
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i <= b; ++i) starts.push_back(i * s);
  kernels::AttentionParams params;
  params.scale = 1.0 / std::sqrt(static_cast<double>(d));
  const kernels::SequenceRanges sequences{starts, {}, {}, {}};
  // Two products forward, five backward, over the causal half.
  const double product = static_cast<double>(b * h * d) * static_cast<double>(s) * static_cast<double>(s + 1);
  const double forward = median_seconds([&] { kernels::attention_forward(exec, params, sequences, q, k, v, o, lse); });
  const double backward =
      median_seconds([&] { kernels::attention_backward(exec, params, sequences, q, k, v, o, lse, d_o, dq, dk, dv); });
  print_bench(nlohmann::ordered_json{{"seq_length", s},
                                     {"heads", h},
                                     {"groups", g},
                                     {"head_size", d},
                                     {"batch", b},
                                     {"threads", exec.num_threads()},
                                     {"forward_seconds", forward},
                                     {"backward_seconds", backward},
                                     {"forward_flops_per_second", 2.0 * product / forward},
                                     {"backward_flops_per_second", 5.0 * product / backward}},
              numbers.json());
  return 0;
}

int bench_optimizer(Arguments args) {
  BenchNumbers numbers(args, {{"--parameters", 32'000'000}, {"--threads-per-rank", train::usable_cores()}});
  const std::int64_t n = round_up(numbers.at("--parameters"), 64);
  kernels::Executor exec = make_executor(numbers.at("--threads-per-rank"));
  Tensor p = random_tensor(exec, {n}, 1), m = exec.zeros({n}, DType::float32), v = exec.zeros({n}, DType::float32);
  const Tensor g = random_tensor(exec, {n}, 2);
  const kernels::AdamStep step{1e-4, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1.0};
  // The copy before, between and after, so that all see the same machine.
  constexpr std::int64_t kCopyBytes = 512 * kMiB;
  double copy = kernels::copy_bandwidth(exec, kCopyBytes, 3);
  const kernels::Timing adam = kernels::time_repeated(0.5, 5, [&] { kernels::adamw_step(exec, step, p, g, m, v); });
  copy = std::max(copy, kernels::copy_bandwidth(exec, kCopyBytes, 3));
  const kernels::Timing norm = kernels::time_repeated(0.5, 5, [&] {
    ExactSum sum;
    kernels::add_squared_norm(exec, g, sum);
  });
  copy = std::max(copy, kernels::copy_bandwidth(exec, kCopyBytes, 3));
  // AdamW reads p, g, m, v and writes p, m, v; the norm reads g.
  const double adam_bytes = 28.0 * static_cast<double>(n), norm_bytes = 4.0 * static_cast<double>(n);
  print_bench(nlohmann::ordered_json{{"parameters", n},
                                     {"threads", exec.num_threads()},
                                     {"adamw_seconds", adam.median_seconds},
                                     {"adamw_best_seconds", adam.best_seconds},
                                     {"adamw_bytes_per_second", adam_bytes / adam.median_seconds},
                                     {"norm_seconds", norm.median_seconds},
                                     {"norm_best_seconds", norm.best_seconds},
                                     {"norm_bytes_per_second", norm_bytes / norm.median_seconds},
                                     {"copy_bytes_per_second", copy},
                                     {"ratio_to_copy", adam_bytes / adam.best_seconds / copy},
                                     {"norm_ratio_to_copy", norm_bytes / norm.best_seconds / copy}},
              numbers.json());
  return 0;
}

}  // namespace megatron::cli
