#include "train/run_log.h"

#include <cmath>

#include "spec/model_count.h"

namespace megatron::train {
namespace {

metrics::LogConfig make_config(const spec::RunSpec& run, std::int64_t total_iterations) {
  metrics::LogConfig config;
  config.train_iters = total_iterations;
  config.world_size = run.parallel.world_size;
  config.log_throughput = run.log.log_throughput;
  return config;
}

}  // namespace

RunLog::RunLog(const spec::RunSpec& run, std::int64_t total_iterations, metrics::Console& console)
    : run_(run), console_(console), config_(make_config(run, total_iterations)), interval_(config_), summary_(config_) {
  if (run.log.log_json.has_value()) json_ = std::make_unique<metrics::JsonLog>(*run.log.log_json);
}

void RunLog::line(const std::string& text) { console_.line(text); }

void RunLog::peak(double flops_per_second) {
  config_.peak_flops_per_second = flops_per_second;
  interval_ = metrics::IntervalLog(config_);
  summary_ = metrics::RunSummary(config_);
}

void RunLog::profile(const StepProfile& profile) {
  flush();
  console_.line(profile_table(profile));
}

void RunLog::figures(const metrics::RunFigures& figures) {
  if (json_ != nullptr) json_->write(figures);
}

metrics::StepRecord RunLog::record_of(const StepReport& report) const {
  metrics::StepRecord record;
  record.iteration = report.iteration;
  record.consumed_samples = report.consumed_samples;
  record.global_batch_size = report.global_batch;
  record.trained_tokens = report.trained_tokens;
  record.computed_tokens = report.computed_tokens;
  record.loss = report.loss;
  record.grad_norm = report.grad_norm;
  record.lr = report.lr;
  if (report.num_zeros >= 0) record.num_zeros = report.num_zeros;
  if (report.params_norm >= 0) record.params_norm = report.params_norm;
  record.step_seconds = report.step_seconds;
  record.forward_seconds = report.forward_seconds;
  record.backward_seconds = report.backward_seconds;
  record.exposed_communication_seconds = report.exposed_seconds;
  record.optimizer_seconds = report.optimizer_seconds;
  record.data_seconds = report.data_seconds;
  record.model_flops = spec::flops_per_step(run_.model, report.global_batch);
  record.skipped = report.skipped;
  record.nan = report.nan;
  record.redone = report.redone;
  record.loss_scale = report.loss_scale;
  return record;
}

void RunLog::step(const StepReport& report) {
  const metrics::StepRecord record = record_of(report);
  if (json_ != nullptr) json_->write(record);
  interval_.add(record);
  summary_.add(record);
  console_.progress(metrics::progress_text(record, config_));
  if (report.iteration % run_.log.log_interval == 0 || report.nan) flush();
}

void RunLog::evaluation(const EvaluationReport& report) {
  metrics::EvalRecord record;
  record.iteration = report.iteration;
  record.validation_set = report.set;
  record.validation_loss = report.loss;
  record.validation_tokens = report.trained_tokens;
  record.seconds = report.seconds;
  console_.line(metrics::validation_lines(record, report.suffix));
  if (json_ != nullptr && report.split == "validation") json_->write(record);
}

void RunLog::flush() {
  if (!interval_.empty()) console_.line(interval_.take_line(std::chrono::system_clock::now()));
}

void RunLog::summary(const metrics::MemoryByKind& peak_memory) { console_.line(summary_.text(peak_memory)); }

}  // namespace megatron::train
