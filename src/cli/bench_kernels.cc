// megatron bench matmul|attention|optimizer: single kernels.
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/units.h"
#include "cli/bench.h"
#include "cli/library_matmul.h"
#include "kernels/attention.h"
#include "kernels/bandwidth.h"
#include "kernels/initialize.h"
#include "kernels/matmul.h"
#include "kernels/optimizer_step.h"
#include "kernels/peak.h"
#include "train/bench.h"
#include "train/machine.h"

namespace megatron::cli {
namespace {

/// Of so many threads; 0: all usable cores, as --threads-per-rank has it.
kernels::Executor make_executor(std::int64_t threads) {
  return {tensor::Allocator::create(Device::cpu), threads == 0 ? train::usable_cores() : static_cast<int>(threads)};
}

Tensor random_tensor(kernels::Executor& exec, const Shape& shape, std::uint64_t stream) {
  Tensor tensor = exec.empty(shape, DType::float32);
  kernels::fill_uniform(exec, make_philox_key(stream, RandomPurpose::test, 0), 1.0, 0, 0, shape.numel(),
                        tensor.view().reshape({1, shape.numel()}));
  return tensor;
}

/// Median seconds of `body` over at least five runs and half a second.
double median_seconds(const std::function<void()>& body) { return kernels::time_repeated(0.5, 5, body).median_seconds; }

double real(std::int64_t x) { return static_cast<double>(x); }

/// The same numbers rounded to `type`.
Tensor random_tensor(kernels::Executor& exec, const Shape& shape, std::uint64_t stream, DType type) {
  Tensor values = random_tensor(exec, shape, stream);
  if (type == DType::float32) return values;
  Tensor rounded = exec.empty(shape, type);
  const float* from = values.data<float>();
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    if (type == DType::bfloat16)
      rounded.data<BFloat16>()[i] = BFloat16(from[i]);
    else
      rounded.data<Float16>()[i] = Float16(from[i]);
  }
  return rounded;
}

/// Refuses operands that cannot be held, before a part of them has been filled. `bytes` as a real number: a product of
/// large options overflows integers.
void require_bytes(double bytes) {
  const double available = static_cast<double>(train::available_memory_bytes());
  if (bytes > available)
    throw Error(str_cat("out of memory: the operands have ",
                        format_bytes(static_cast<std::int64_t>(std::min(bytes, 9e18))), "; this machine has ",
                        format_bytes(train::available_memory_bytes()), " available"));
}
void require_memory(double floats) { require_bytes(4.0 * floats); }

/// The three products of a linear layer.
struct Layout {
  const char* name;
  bool transpose_a, transpose_b, accumulate;
};
constexpr Layout kLayouts[] = {
    {"x_wT", false, true, false}, {"dy_w", false, false, false}, {"dyT_x_accumulate", true, false, true}};

/// FLOP/s of our product and of the library's, in turn: noise of the machine meets all of them. The result is of the
/// operands' type, or float32 where it is added.
void compare_with_library(kernels::Executor& exec, const Layout& layout, DType type, std::int64_t m, std::int64_t n,
                          std::int64_t k, nlohmann::ordered_json& line) {
  const DType result = layout.accumulate ? DType::float32 : type;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, bool transposed, std::uint64_t stream) {
    return random_tensor(exec, transposed ? Shape{columns, rows} : Shape{rows, columns}, stream, type);
  };
  const Tensor a = matrix(m, k, layout.transpose_a, 1), b = matrix(k, n, layout.transpose_b, 2);
  Tensor c = exec.zeros({m, n}, result), c_library = exec.zeros({m, n}, result);
  const auto transpose = [](bool is) { return is ? kernels::Transpose::yes : kernels::Transpose::no; };
  std::vector<LibraryMatmul> ways =
      library_matmuls(exec, {m, n, k, type, a.view_const().pointer, layout.transpose_a, b.view_const().pointer,
                             layout.transpose_b, result, c_library.view().pointer, layout.accumulate});
  ways.insert(ways.begin(), {"", [&] {
                               kernels::matmul(exec, a, transpose(layout.transpose_a), b, transpose(layout.transpose_b),
                                               c, layout.accumulate);
                             }});
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  std::vector<std::vector<double>> rates(ways.size());
  constexpr int kRounds = 9;
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < ways.size(); ++i)
      rates[i].push_back(flops / kernels::time_repeated(0.03, 1, ways[i].run).best_seconds);
  double library_median = 0, library_best = 0;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::sort(rates[i].begin(), rates[i].end());
    const double median = rates[i][kRounds / 2], best = rates[i].back();
    const std::string name = str_cat(layout.name, ways[i].name.empty() ? "" : "_", ways[i].name);
    line[name + "_flops_per_second"] = median;
    line[name + "_best_flops_per_second"] = best;
    if (i == 0) continue;
    library_median = std::max(library_median, median);
    library_best = std::max(library_best, best);
  }
  if (ways.size() == 1) return;
  line[str_cat(layout.name, "_ratio_to_onednn")] = rates[0][kRounds / 2] / library_median;
  line[str_cat(layout.name, "_best_ratio_to_onednn")] = rates[0].back() / library_best;
}

}  // namespace

double library_matmul_peak(std::int64_t threads, DType type) {
  kernels::Executor exec = make_executor(threads);
  double best = 0;
  for (const std::int64_t n : train::kPeakSizes) {
    const Tensor a = random_tensor(exec, {n, n}, 1, type), b = random_tensor(exec, {n, n}, 2, type);
    Tensor c = exec.empty({n, n}, type);
    const double flops = 2.0 * static_cast<double>(n * n) * static_cast<double>(n);
    const LibraryProblem problem{
        n, n, n, type, a.view_const().pointer, false, b.view_const().pointer, false, type, c.view().pointer, false};
    for (const LibraryMatmul& way : library_matmuls(exec, problem))
      best = std::max(best, flops / kernels::time_repeated(0.0, train::kPeakRepetitions, way.run).best_seconds);
  }
  return best;
}

int bench_matmul(Arguments args) {
  BenchNumbers numbers(args, {{"--m", 1024}, {"--n", 3072}, {"--k", 768}, {"--threads-per-rank", 0}},
                       {"--bf16", "--fp16"});
  if (numbers.given("--bf16") && numbers.given("--fp16")) throw ConfigError("--bf16 and --fp16: choose one of them");
  const DType type = numbers.given("--bf16")   ? DType::bfloat16
                     : numbers.given("--fp16") ? DType::float16
                                               : DType::float32;
  const std::int64_t m = numbers.at("--m"), n = numbers.at("--n"), k = numbers.at("--k");
  // Operands are rounded from floats, one after the other; the largest result is float32.
  require_bytes(static_cast<double>(dtype_size(type)) * (real(m) * real(k) + real(k) * real(n)) +
                8.0 * real(m) * real(n));
  kernels::Executor exec = make_executor(numbers.at("--threads-per-rank"));
  nlohmann::ordered_json line{
      {"m", m}, {"n", n}, {"k", k}, {"dtype", dtype_name(type)}, {"threads", exec.num_threads()}};
  line["matmul_peak_flops_per_second"] = kernels::matmul_peak_within(exec, 1.0, type);
  for (const Layout& layout : kLayouts) compare_with_library(exec, layout, type, m, n, k, line);
  print_bench(line, numbers.json());
  return 0;
}

int bench_attention(Arguments args) {
  BenchNumbers numbers(args, {{"--seq-length", 1024},
                              {"--heads", 12},
                              {"--groups", 12},
                              {"--head-size", 64},
                              {"--batch", 1},
                              {"--threads-per-rank", 0}});
  const std::int64_t s = numbers.at("--seq-length"), h = numbers.at("--heads"), g = numbers.at("--groups");
  const std::int64_t d = numbers.at("--head-size"), b = numbers.at("--batch");
  require_memory(real(b) * real(s) * (4 * real(h) * real(d) + 4 * real(g) * real(d) + real(h)));
  const std::int64_t t = b * s;
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
  BenchNumbers numbers(args, {{"--parameters", 32'000'000}, {"--threads-per-rank", 0}});
  const std::int64_t n = round_up(numbers.at("--parameters"), 64);
  require_memory(4.0 * real(n));
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
