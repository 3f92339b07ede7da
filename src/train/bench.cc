#include "train/bench.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "base/median.h"
#include "base/rng.h"
#include "kernels/peak.h"
#include "spec/model_count.h"
#include "train/machine.h"
#include "train/step_recorder.h"
#include "train/trainer.h"

namespace megatron::train {
namespace {

/// Token i of sample s is a function of (s, i); `distinct` samples come again and again.
class RandomTokens final : public data::Dataset {
 public:
  RandomTokens(std::int64_t size, std::int64_t distinct, std::int64_t seq_length, std::int64_t vocab)
      : size_(size), distinct_(distinct), seq_length_(seq_length), vocab_(vocab) {}
  std::int64_t size() const override { return size_; }
  data::Sample get(std::int64_t index) const override {
    const PhiloxKey key = make_philox_key(1234, RandomPurpose::mock_data, 0);
    data::Sample sample;
    for (std::int64_t i = 0; i <= seq_length_; ++i) {
      const std::uint32_t word =
          philox4x32(key, {static_cast<std::uint32_t>(index % distinct_), static_cast<std::uint32_t>(i), 0, 0})[0];
      const auto id = static_cast<std::int64_t>(std::uint64_t{word} * static_cast<std::uint64_t>(vocab_) >> 32);
      if (i < seq_length_) sample.tokens.push_back(id);
      if (i > 0) sample.labels.push_back(id);
      if (i < seq_length_) sample.position_ids.push_back(i);
    }
    sample.loss_mask.assign(static_cast<std::size_t>(seq_length_), 1.0F);
    sample.sequence_starts = {0, seq_length_};
    return sample;
  }

 private:
  std::int64_t size_, distinct_, seq_length_, vocab_;
};

class StepCollector final : public RunListener {
 public:
  void step(const StepReport& report) override {
    if (reports.empty()) first_step_end = seconds_since_process_start();
    reports.push_back(report);
  }
  void profile(const StepProfile& profile) override { recorded = profile; }
  std::vector<StepReport> reports;
  StepProfile recorded;
  double first_step_end = 0;
};

double median_of(const std::vector<StepReport>& reports, std::int64_t warmup, double StepReport::*field) {
  std::vector<double> values;
  for (std::size_t i = static_cast<std::size_t>(warmup); i < reports.size(); ++i) values.push_back(reports[i].*field);
  return median(std::move(values));
}

}  // namespace

double bench_flops(const spec::ModelSpec& model, std::int64_t tokens) {
  const spec::ModelCount count = spec::count_parameters(model);
  const std::int64_t head = model.vocab_size * model.hidden_size;
  const std::int64_t tables = count.embedding - (model.padded_vocab_size - model.vocab_size) * model.hidden_size;
  const std::int64_t n = count.unpadded_vocab - tables + (model.tied() ? head : 0);
  const auto t = static_cast<double>(tokens);
  return 6.0 * static_cast<double>(n) * t + 6.0 * static_cast<double>(model.num_layers * model.attention_width()) *
                                                static_cast<double>(model.seq_length) * t;
}

std::int64_t BenchResult::peak_bytes() const {
  return std::accumulate(peak_bytes_by_kind.begin(), peak_bytes_by_kind.end(), std::int64_t{0});
}

namespace {

/// The run of bench_step: the measured steps, then those that are recorded.
Process make_process(const spec::RunSpec& run, std::int64_t measured) {
  Process process;
  process.run = run;
  spec::LogSpec& log = process.run.log;
  const std::int64_t recorded = log.profile ? kRecordedSteps : log.trace.has_value() ? 1 : 0;
  log.profile_step_start = measured;
  log.profile_step_end = measured + recorded;
  process.run.batch.train_iters = measured + recorded;
  process.run.batch.eval_iters = 0;
  const std::int64_t batch = run.batch.global_batch_size;
  process.data.train = std::make_shared<RandomTokens>((measured + recorded) * batch, 4 * batch, run.model.seq_length,
                                                      run.model.vocab_size);
  return process;
}

/// Memory at the end of the measured steps, before recording and the measurement of the peak add their own.
void add_memory(BenchResult& result, RankParts& parts) {
  const tensor::MemoryTracker& tracker = parts.exec().allocator().tracker();
  for (std::size_t k = 0; k < tensor::kNumMemoryKinds; ++k)
    result.peak_bytes_by_kind[k] += tracker.at_peak(static_cast<MemoryKind>(k));
  result.peak_rss_bytes = std::max(result.peak_rss_bytes, peak_resident_bytes());
}

/// Rate of the square products of all ranks together.
double measure_peak(RankParts& parts, DType type, bool quick) {
  parts.mesh().world.barrier("bench.peak");
  Tensor rate = parts.exec().empty({1}, DType::float64, MemoryKind::communication);
  rate.data<double>()[0] = quick ? kernels::matmul_peak_within(parts.exec(), 0.5, type)
                                 : kernels::matmul_peak(parts.exec(), kPeakSizes, kPeakRepetitions, type);
  if (!parts.mesh().world.trivial()) rate = parts.mesh().world.all_reduce(std::move(rate), "bench.peak_rate");
  return std::as_const(rate).data<double>()[0];
}

void take_reports(BenchResult& result, const std::vector<StepReport>& reports, std::int64_t warmup) {
  result.tokens_per_step = reports.front().computed_tokens;
  result.step_seconds = median_of(reports, warmup, &StepReport::step_seconds);
  result.forward_seconds = median_of(reports, warmup, &StepReport::forward_seconds);
  result.backward_seconds = median_of(reports, warmup, &StepReport::backward_seconds);
  result.exposed_seconds = median_of(reports, warmup, &StepReport::exposed_seconds);
  result.optimizer_seconds = median_of(reports, warmup, &StepReport::optimizer_seconds);
  result.tokens_per_second = static_cast<double>(result.tokens_per_step) / result.step_seconds;
  result.first_loss = reports.front().loss;
  result.last_loss = reports.back().loss;
}

}  // namespace

BenchResult bench_step(const spec::RunSpec& run, std::int64_t warmup, std::int64_t steps, bool quick_peak) {
  const std::int64_t measured = warmup + steps;
  const Process process = make_process(run, measured);
  const std::unique_ptr<comm::World> world = create_world(process.run);
  StepCollector collector;
  BenchResult result;
  std::mutex mutex;
  TrainHooks hooks;
  // One of each rank of this process, by global rank.
  std::map<int, PipelineMeter> meters;
  hooks.after_setup = [&](RankParts& parts) {
    const std::lock_guard<std::mutex> lock(mutex);
    meters[parts.mesh().rank];
  };
  hooks.after_step = [&](RankParts& parts, const StepReport& report) {
    if (report.iteration > warmup && report.iteration <= measured && !parts.mesh().pp.trivial())
      meters.at(parts.mesh().rank).add(parts.engine().latest_times());
    if (report.iteration != measured) return;
    const std::lock_guard<std::mutex> lock(mutex);
    add_memory(result, parts);
  };
  hooks.at_end = [&](RankParts& parts) {
    const double peak = measure_peak(parts, run.numerics.params_dtype, quick_peak);
    const MachineLimits limits = run.log.profile ? measure_limits(parts, /*matmul_seconds=*/0.0) : MachineLimits{};
    const PipelineFigures pipeline = meters.at(parts.mesh().rank).finish(parts);
    const std::lock_guard<std::mutex> lock(mutex);
    result.pipeline = pipeline;
    result.parameters = parts.num_parameters();
    result.threads_per_rank = parts.exec().num_threads();
    result.matmul_peak_flops_per_second = peak;
    result.profile.limits = {peak / parts.mesh().world_size, limits.copy_bytes_per_second};
  };
  const TrainOutcome outcome = run_training(*world, process, &collector, hooks);
  if (!world->is_main_process()) return result;

  std::vector<StepReport>& reports = collector.reports;
  if (std::ssize(reports) < measured)
    throw Error(str_cat("the run ended after ", reports.size(), " of ", measured, " steps: nothing was measured",
                        outcome.error.empty() ? "" : ": ", outcome.error));
  reports.resize(static_cast<std::size_t>(measured));
  take_reports(result, reports, warmup);
  result.model_flops = bench_flops(run.model, result.tokens_per_step);
  result.model_flops_per_second = result.model_flops / result.step_seconds;
  result.seconds_to_first_step_end = collector.first_step_end;
  const MachineLimits limits = result.profile.limits;
  result.profile = std::move(collector.recorded);
  result.profile.limits = limits;
  return result;
}

}  // namespace megatron::train
