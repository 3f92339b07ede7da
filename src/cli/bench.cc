// megatron bench step|matmul|attention|comm|optimizer: how fast this build is on this machine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/units.h"
#include "cli/command.h"
#include "cli/run_parsing.h"
#include "comm/bench.h"
#include "config/parse.h"
#include "config/presets.h"
#include "config/text_value.h"
#include "kernels/attention.h"
#include "kernels/initialize.h"
#include "kernels/matmul.h"
#include "kernels/optimizer_step.h"
#include "kernels/peak.h"
#include "train/assemble.h"
#include "train/bench.h"
#include "train/machine.h"

namespace megatron::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: megatron bench step --preset gpt2-124m|gpt2-124m-s1024|tiny [--arch gpt2|llama] [--steps N] [--warmup N] "
    "[--json]\n"
    "                           [any option of megatron train: --seq-length, --micro-batch-size, --world-size,\n"
    "                            --threads-per-rank, --tensor-model-parallel-size, …]\n"
    "       megatron bench matmul [--m M --n N --k K] [--threads-per-rank T] [--json]\n"
    "       megatron bench attention [--seq-length S --heads H --groups G --head-size D --batch B] [--threads-per-rank "
    "T] [--json]\n"
    "       megatron bench optimizer [--parameters P] [--threads-per-rank T] [--json]\n"
    "       megatron bench comm [--world-size N] [--json]\n\n"
    "Options of a run are in `megatron options`.";

constexpr std::int64_t kMostThreads = 512, kMostElements = std::int64_t{1} << 32;

/// "--name value" pairs and "--json", for the benchmarks that have a handful of numbers.
class Numbers {
 public:
  Numbers(Arguments args, std::vector<std::pair<std::string, std::int64_t>> defaults) : values_(std::move(defaults)) {
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::size_t equals = args[i].find('=');
      const std::string name = args[i].substr(0, equals);
      if (args[i] == "--json") {
        json_ = true;
        continue;
      }
      std::int64_t& value = at(name);
      if (equals == std::string::npos && i + 1 == args.size()) throw ConfigError(name + ": a value is missing");
      const std::string text = equals == std::string::npos ? args[++i] : args[i].substr(equals + 1);
      const auto number = config::parse_integer(text);
      const std::int64_t most = name == "--threads-per-rank" || name == "--world-size" ? kMostThreads : kMostElements;
      if (!number.has_value() || *number < 1 || *number > most)
        throw ConfigError(str_cat(name, " ", text, ": must be a whole number from 1 to ", most));
      value = *number;
    }
  }
  std::int64_t& at(const std::string& name) {
    for (auto& [known, value] : values_)
      if (known == name) return value;
    std::string names;
    for (const auto& [known, value] : values_) names += " " + known;
    throw ConfigError(name + ": unknown; known are" + names + " --json");
  }
  bool json() const { return json_; }

 private:
  std::vector<std::pair<std::string, std::int64_t>> values_;
  bool json_ = false;
};

void print(const Json& json, bool as_json) {
  if (as_json) {
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  for (const auto& [key, value] : json.items()) std::printf("%-30s %s\n", key.c_str(), value.dump().c_str());
}

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

/// What `bench step` takes itself; everything else is an option of a run.
struct StepRequest {
  std::string preset = "tiny", arch = "gpt2";
  std::int64_t steps = 10, warmup = 2;
  bool json = false;
  std::vector<std::string> rest;

  explicit StepRequest(Arguments args) {
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::size_t equals = args[i].find('=');
      const std::string name = args[i].substr(0, equals);
      if (name == "--json") {
        json = true;
      } else if (name == "--preset" || name == "--arch" || name == "--steps" || name == "--warmup") {
        if (equals == std::string::npos && i + 1 == args.size()) throw ConfigError(name + ": a value is missing");
        take(name, equals == std::string::npos ? args[++i] : args[i].substr(equals + 1));
      } else {
        rest.push_back(args[i]);
      }
    }
  }

 private:
  void take(const std::string& name, const std::string& text) {
    if (name == "--preset") preset = text;
    if (name == "--arch") arch = text;
    if (name == "--steps") steps = count(name, text, 1);
    if (name == "--warmup") warmup = count(name, text, 0);
  }
  static std::int64_t count(const std::string& name, const std::string& text, std::int64_t least) {
    const auto number = config::parse_integer(text);
    if (!number.has_value() || *number < least)
      throw ConfigError(str_cat(name, " ", text, ": must be a whole number, at least ", least));
    return *number;
  }
};

/// What every measured step has, whatever its size.
constexpr const char* kStepSettings[] = {"--tokenizer-type",
                                         "NullTokenizer",
                                         "--make-vocab-size-divisible-by",
                                         "128",
                                         "--mock-data",
                                         "--hidden-dropout",
                                         "0",
                                         "--attention-dropout",
                                         "0",
                                         "--lr",
                                         "1e-4",
                                         "--lr-decay-style",
                                         "constant",
                                         "--adam-beta1",
                                         "0.9",
                                         "--adam-beta2",
                                         "0.95",
                                         "--weight-decay",
                                         "0.1",
                                         "--clip-grad",
                                         "1.0",
                                         "--eval-iters",
                                         "0",
                                         "--train-iters",
                                         "1"};

int bench_step(Arguments args) {
  const StepRequest request(args);
  std::vector<std::string> preset = config::preset_args(request.preset, request.arch);
  preset.insert(preset.end(), std::begin(kStepSettings), std::end(kStepSettings));
  const config::ParsedRun parsed =
      config::parse_run(request.rest, {config::ParseMode::train, {}, launcher_size(), preset});
  config::require_accepted(parsed);
  print_notices(parsed);
  const train::BenchResult r = train::bench_step(parsed.spec, request.warmup, request.steps);
  if (!is_first_process()) return 0;
  print({{"trainer", "megatron.cpp"},
         {"preset", request.preset},
         {"arch", request.arch},
         {"world_size", parsed.spec.parallel.world_size},
         {"threads_per_rank", r.threads_per_rank},
         {"parameters", r.parameters},
         {"tokens_per_step", r.tokens_per_step},
         {"tokens_per_second", r.tokens_per_second},
         {"step_seconds", r.step_seconds},
         {"model_flops_per_second", r.model_flops_per_second},
         {"matmul_peak_flops_per_second", r.matmul_peak_flops_per_second},
         {"ratio_to_matmul_peak", r.model_flops_per_second / r.matmul_peak_flops_per_second},
         {"seconds_to_first_step_end", r.seconds_to_first_step_end},
         {"forward_seconds", r.forward_seconds},
         {"backward_seconds", r.backward_seconds},
         {"exposed_communication_seconds", r.exposed_seconds},
         {"optimizer_seconds", r.optimizer_seconds},
         {"peak_rss_bytes", r.peak_rss_bytes},
         {"first_loss", r.first_loss},
         {"last_loss", r.last_loss}},
        request.json);
  return 0;
}

int bench_matmul(Arguments args) {
  Numbers numbers(args, {{"--m", 1024}, {"--n", 3072}, {"--k", 768}, {"--threads-per-rank", train::usable_cores()}});
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
  print({{"m", m},
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
  Numbers numbers(args, {{"--seq-length", 1024},
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
  print({{"seq_length", s},
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
  Numbers numbers(args, {{"--parameters", 32'000'000}, {"--threads-per-rank", train::usable_cores()}});
  const std::int64_t n = round_up(numbers.at("--parameters"), 64);
  kernels::Executor exec = make_executor(numbers.at("--threads-per-rank"));
  Tensor p = random_tensor(exec, {n}, 1), m = exec.zeros({n}, DType::float32), v = exec.zeros({n}, DType::float32);
  const Tensor g = random_tensor(exec, {n}, 2);
  const kernels::AdamStep step{1e-4, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1.0};
  const double seconds = median_seconds([&] { kernels::adamw_step(exec, step, p, g, m, v); });
  const double norm = median_seconds([&] {
    ExactSum sum;
    kernels::add_squared_norm(exec, g, sum);
  });
  // AdamW reads p, g, m, v and writes p, m, v; the norm reads g.
  print({{"parameters", n},
         {"threads", exec.num_threads()},
         {"adamw_seconds", seconds},
         {"adamw_bytes_per_second", 28.0 * static_cast<double>(n) / seconds},
         {"norm_seconds", norm},
         {"norm_bytes_per_second", 4.0 * static_cast<double>(n) / norm}},
        numbers.json());
  return 0;
}

int bench_comm(Arguments args) {
  Numbers numbers(args, {{"--world-size", 2}, {"--repeats", 20}});
  const auto n = static_cast<int>(numbers.at("--world-size"));
  if (n < 2) throw ConfigError(str_cat("--world-size ", n, ": collectives need at least 2 ranks"));
  const std::vector<std::int64_t> bytes = {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB};
  for (const comm::CommTiming& t : comm::bench_collectives(n, bytes, static_cast<int>(numbers.at("--repeats"))))
    print({{"operation", t.operation},
           {"world_size", n},
           {"bytes", t.bytes},
           {"seconds", t.seconds},
           {"limit_seconds", t.limit_seconds},
           {"bytes_per_second", static_cast<double>(t.bytes) / t.seconds},
           {"ratio_to_limit", t.limit_seconds / t.seconds}},
          numbers.json());
  return 0;
}

}  // namespace

int run_bench(Arguments args) {
  const auto is_help = [](const std::string& arg) { return arg == "--help" || arg == "-h"; };
  if (std::any_of(args.begin(), args.end(), is_help)) return std::puts(kUsage), 0;
  const std::string what = args.empty() ? "" : args[0];
  const Arguments rest = args.empty() ? args : args.subspan(1);
  if (what == "step") return bench_step(rest);
  if (what == "matmul") return bench_matmul(rest);
  if (what == "attention") return bench_attention(rest);
  if (what == "optimizer") return bench_optimizer(rest);
  if (what == "comm") return bench_comm(rest);
  std::fprintf(stderr, "%s\n", kUsage);
  return 2;
}

}  // namespace megatron::cli
