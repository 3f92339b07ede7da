// How fast a training step is on this machine: the real trainer on random tokens, and the peak of the matrix product
// beside.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace megatron::kernels {
class Executor;
}

namespace megatron::train {

struct BenchResult {
  std::int64_t parameters = 0, tokens_per_step = 0;
  int threads_per_rank = 0;
  /// Medians over the measured steps.
  double tokens_per_second = 0, step_seconds = 0;
  double forward_seconds = 0, backward_seconds = 0, exposed_seconds = 0, optimizer_seconds = 0;
  double model_flops = 0;                   // of one step
  double model_flops_per_second = 0;        // model_flops ÷ step_seconds
  double matmul_peak_flops_per_second = 0;  // all ranks at the same time
  double seconds_to_first_step_end = 0;     // from the start of the process
  std::int64_t peak_rss_bytes = 0;
  double first_loss = 0, last_loss = 0;
};

/// Trains `warmup` + `steps` steps on random token ids.
BenchResult bench_step(const spec::RunSpec& run, std::int64_t warmup, std::int64_t steps);

/// 6·N·T + 6·layers·width·seq·T: N = parameters without embedding tables but with the head's matrix, T = tokens of a
/// step, width = heads·head size; the second term is causal attention.
double bench_flops(const spec::ModelSpec& model, std::int64_t tokens);

/// Best rate of square float32 products of these sizes, three each, on the executor's threads.
double matmul_peak(kernels::Executor& exec, const std::vector<std::int64_t>& sizes);

double median(std::vector<double> values);

}  // namespace megatron::train
