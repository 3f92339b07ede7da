// Rates of the kernels that are bound by memory, at the shapes of GPT-2 124M with 1024 tokens, beside copies of the
// same size, in float32 and on bfloat16 operands. bytes_per_second counts each operand once per read and once per
// write, as the front doors do.
//   kernel_bench --benchmark_filter=norm --benchmark_repetitions=9 --benchmark_report_aggregates_only
#include <benchmark/benchmark.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/exact_sum.h"
#include "kernels/activation.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/initialize.h"
#include "kernels/norm.h"
#include "kernels/optimizer_step.h"
#include "kernels/rope.h"

namespace megatron::kernels {
namespace {

constexpr std::int64_t kTokens = 1024, kHidden = 768, kHeads = 12, kHeadSize = 64, kVocab = 50304;

/// An executor and its tensors; every benchmark has one of its own.
struct Bench {
  Bench(int threads, DType type) : exec(tensor::Allocator::create(Device::cpu), threads), dtype(type) {}
  /// Random values of the benchmark's type; and float32 for what stays float32 in 16-bit runs.
  Tensor make(const Shape& shape) {
    const Tensor wide = make_wide(shape);
    if (dtype == DType::float32) return wide;
    Tensor t = exec.empty(shape, dtype);
    copy(exec, wide, t);
    return t;
  }
  Tensor make_wide(const Shape& shape) {
    Tensor t = exec.empty(shape, DType::float32);
    fill_uniform(exec, make_philox_key(++streams, RandomPurpose::test, 0), 1.0, 0, 0, t.numel(), t.flat());
    return t;
  }
  Executor exec;
  DType dtype;
  std::uint64_t streams = 0;
};

/// Prepares operands, then returns what is timed.
using Prepare = std::function<std::function<void()>(Bench&)>;

void measure(const std::string& name, const Prepare& prepare) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const int threads : {1, 2}) {
      const auto run = [threads, dtype, prepare](benchmark::State& state) {
        Bench bench(threads, dtype);
        const std::function<void()> body = prepare(bench);
        body();
        const std::int64_t before = bench.exec.counters().bytes_moved;
        body();
        const std::int64_t bytes = bench.exec.counters().bytes_moved - before;
        for ([[maybe_unused]] auto _ : state) body();
        state.SetBytesProcessed(bytes * static_cast<std::int64_t>(state.iterations()));
      };
      const std::string type = dtype == DType::float32 ? "/fp32" : "/bf16";
      benchmark::RegisterBenchmark((name + type + "/threads:" + std::to_string(threads)).c_str(), run)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
}

void measure_copies() {
  for (const std::int64_t width : {kHidden, 3 * kHidden, 4 * kHidden, kVocab})
    measure("copy/" + std::to_string(width), [width](Bench& b) -> std::function<void()> {
      const Tensor from = b.make({kTokens, width});
      Tensor to = b.make({kTokens, width});
      return [&b, from, to]() mutable { copy(b.exec, from, to); };
    });
}

void measure_norms() {
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    const std::string name = kind == NormKind::layer_norm ? "layer_norm" : "rms_norm";
    const auto beta = [kind](Bench& b) { return kind == NormKind::layer_norm ? b.make({kHidden}) : Tensor(); };
    const auto beta_grad = [kind](Bench& b) {
      return kind == NormKind::layer_norm ? b.make_wide({kHidden}) : Tensor();
    };
    const auto view = [](Tensor& t) { return t.defined() ? t.view() : TensorView(); };
    measure(name + "_forward", [=](Bench& b) -> std::function<void()> {
      return [&b, kind, view, x = b.make({kTokens, kHidden}), y = b.make({kTokens, kHidden}), gamma = b.make({kHidden}),
              shift = beta(b), mean = b.make_wide({kTokens}), rstd = b.make_wide({kTokens})]() mutable {
        norm_forward(b.exec, kind, x, gamma, view(shift), 1e-5, y, mean, rstd);
      };
    });
    measure(name + "_backward", [=](Bench& b) -> std::function<void()> {
      return [&b, kind, view, x = b.make({kTokens, kHidden}), dy = b.make({kTokens, kHidden}),
              dx = b.make({kTokens, kHidden}), gamma = b.make({kHidden}), dgamma = b.make_wide({kHidden}),
              dbeta = beta_grad(b), mean = b.make_wide({kTokens}), rstd = b.make_wide({kTokens})]() mutable {
        norm_backward(b.exec, kind, dy, x, gamma, mean, rstd, dx, dgamma, view(dbeta));
      };
    });
  }
}

void measure_activations() {
  const auto operands = [](Bench& b, std::int64_t width) {
    return std::vector<Tensor>{b.make({kTokens, 4 * kHidden}), b.make({kTokens, width}), b.make({kTokens, width})};
  };
  measure("gelu_forward", [=](Bench& b) -> std::function<void()> {
    return [&b, t = operands(b, 4 * kHidden)]() mutable {
      activation_forward(b.exec, ActivationKind::gelu_tanh, t[1], t[0]);
    };
  });
  measure("gelu_backward", [=](Bench& b) -> std::function<void()> {
    return [&b, t = operands(b, 4 * kHidden)]() mutable {
      activation_backward(b.exec, ActivationKind::gelu_tanh, t[0], t[1], t[2]);
    };
  });
  measure("swiglu_forward", [=](Bench& b) -> std::function<void()> {
    return [&b, t = operands(b, 8 * kHidden)]() mutable {
      gated_activation_forward(b.exec, ActivationKind::silu, t[1], t[0]);
    };
  });
  measure("swiglu_backward", [=](Bench& b) -> std::function<void()> {
    return [&b, t = operands(b, 8 * kHidden)]() mutable {
      gated_activation_backward(b.exec, ActivationKind::silu, t[0], t[1], t[2]);
    };
  });
}

void measure_elementwise() {
  for (const std::int64_t width : {kHidden, 3 * kHidden, 4 * kHidden}) {
    const std::string suffix = "/" + std::to_string(width);
    measure("add_bias" + suffix, [width](Bench& b) -> std::function<void()> {
      return [&b, y = b.make({kTokens, width}), bias = b.make({width})]() mutable { add_bias(b.exec, bias, y); };
    });
    measure("bias_grad" + suffix, [width](Bench& b) -> std::function<void()> {
      return
          [&b, dy = b.make({kTokens, width}), grad = b.make_wide({width})]() mutable { bias_grad(b.exec, dy, grad); };
    });
  }
  measure("add_in_place", [](Bench& b) -> std::function<void()> {
    return
        [&b, x = b.make({kTokens, kHidden}), y = b.make({kTokens, kHidden})]() mutable { add_in_place(b.exec, x, y); };
  });
  for (const double dropout : {0.0, 0.1})
    measure(dropout > 0 ? "bias_dropout_add" : "bias_residual_add", [dropout](Bench& b) -> std::function<void()> {
      std::vector<std::int64_t> rows(kTokens);
      std::iota(rows.begin(), rows.end(), 0);
      return [&b, dropout, rows, x = b.make({kTokens, kHidden}), residual = b.make({kTokens, kHidden}),
              y = b.make({kTokens, kHidden}), bias = b.make({kHidden})]() mutable {
        bias_dropout_add(b.exec, x, bias, residual, {dropout, {1, 2}, 0}, {rows.data(), rows.data()}, y);
      };
    });
}

void measure_tables() {
  const auto ids = [] {
    std::vector<std::int64_t> result(kTokens);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<std::int64_t>(i * 7919 % kVocab);
    return result;
  };
  measure("embedding_forward", [=](Bench& b) -> std::function<void()> {
    return [&b, ids = ids(), table = b.make({kVocab, kHidden}), y = b.make({kTokens, kHidden})]() mutable {
      embedding_forward(b.exec, table, ids.data(), 0, y);
    };
  });
  measure("embedding_backward", [=](Bench& b) -> std::function<void()> {
    return [&b, ids = ids(), table = b.make_wide({kVocab, kHidden}), dy = b.make({kTokens, kHidden})]() mutable {
      embedding_backward(b.exec, dy, ids.data(), 0, table);
    };
  });
  for (const bool interleaved : {false, true})
    measure(interleaved ? "rope_interleaved" : "rope", [interleaved](Bench& b) -> std::function<void()> {
      std::vector<std::int64_t> positions(kTokens);
      std::iota(positions.begin(), positions.end(), 0);
      return [&b, interleaved, positions, x = b.make({kTokens, kHeads, kHeadSize}),
              cos = b.make_wide({kTokens, kHeadSize / 2}), sin = b.make_wide({kTokens, kHeadSize / 2})]() mutable {
        rope_in_place(b.exec, x, cos, sin, positions.data(), interleaved, false);
      };
    });
}

void measure_parameters() {
  constexpr std::int64_t kParameters = std::int64_t{1} << 25;
  measure("adamw", [](Bench& b) -> std::function<void()> {
    const bool rounds = b.dtype != DType::float32;
    return [&b, p = b.make_wide({kParameters}), g = b.make_wide({kParameters}),
            m = b.exec.zeros({kParameters}, DType::float32), v = b.exec.zeros({kParameters}, DType::float32),
            value = rounds ? b.exec.zeros({kParameters}, b.dtype) : Tensor()]() mutable {
      adamw_step(b.exec, {1e-4, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1.0}, p, g, m, v,
                 value.defined() ? value.view() : TensorView());
    };
  });
  measure("squared_norm", [](Bench& b) -> std::function<void()> {
    return [&b, g = b.make({kParameters})]() {
      ExactSum sum;
      add_squared_norm(b.exec, g, sum);
      benchmark::DoNotOptimize(sum);
    };
  });
  measure("fill_normal", [](Bench& b) -> std::function<void()> {
    return [&b, w = b.make_wide({kParameters})]() mutable {
      fill_normal(b.exec, make_philox_key(1, RandomPurpose::test, 0), 0.02, 0, 0, kParameters, w);
    };
  });
}

}  // namespace
}  // namespace megatron::kernels

int main(int argc, char** argv) {
  megatron::kernels::measure_copies();
  megatron::kernels::measure_norms();
  megatron::kernels::measure_activations();
  megatron::kernels::measure_elementwise();
  megatron::kernels::measure_tables();
  megatron::kernels::measure_parameters();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
