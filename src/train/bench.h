// How fast a training step is on this machine: the real trainer on random tokens, and the peak of the matrix product
// beside.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "spec/run_spec.h"
#include "tensor/memory_tracker.h"
#include "train/pipeline_meter.h"
#include "train/step_profile.h"

namespace megatron::train {

constexpr std::int64_t kPeakSizes[] = {2048, 3072, 4096};
constexpr std::int64_t kPeakRepetitions = 5;
/// Steps that are recorded for a profile, behind the measured ones.
constexpr std::int64_t kRecordedSteps = 3;

struct BenchResult {
  std::int64_t parameters = 0, tokens_per_step = 0;
  int threads_per_rank = 0;
  /// Medians over the measured steps.
  double tokens_per_second = 0, step_seconds = 0;
  double forward_seconds = 0, backward_seconds = 0, exposed_seconds = 0, optimizer_seconds = 0;
  double model_flops = 0;             // of one step
  double model_flops_per_second = 0;  // model_flops ÷ step_seconds
  /// Best of kPeakRepetitions square products of each of kPeakSizes; all ranks at the same time.
  double matmul_peak_flops_per_second = 0;
  double seconds_to_first_step_end = 0;  // from the start of the process
  std::int64_t peak_rss_bytes = 0;       // of the first process
  /// What the ranks of that process held by kind, each rank at the moment of its largest total, added up.
  std::array<std::int64_t, tensor::kNumMemoryKinds> peak_bytes_by_kind{};
  std::int64_t peak_bytes() const;       // their sum
  double first_loss = 0, last_loss = 0;  // of the first step, and of the last measured one
  StepProfile profile;                   // no ranks without run.log.profile
  PipelineFigures pipeline;              // of the measured steps; no ranks in a pipeline of one
};

/// Trains `warmup` + `steps` steps on random token ids. `quick_peak`: the peak is the best product of one size within
/// half a second. With run.log.profile or .trace further steps follow, which are
/// recorded and not measured: kRecordedSteps, or one for a trace alone.
BenchResult bench_step(const spec::RunSpec& run, std::int64_t warmup, std::int64_t steps, bool quick_peak = false);

/// 6·N·T + 6·layers·width·seq·T: N = parameters without embedding tables but with the head's matrix, T = tokens of a
/// step, width = heads·head size; the second term is causal attention.
double bench_flops(const spec::ModelSpec& model, std::int64_t tokens);

}  // namespace megatron::train
