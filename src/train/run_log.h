// What a run prints and logs: Megatron-LM's lines with ours behind, the live line of a terminal, the JSON log, the last
// summary.
#pragma once

#include <cstdint>
#include <memory>

#include "metrics/console.h"
#include "metrics/json_log.h"
#include "metrics/log_line.h"
#include "spec/run_spec.h"
#include "train/listener.h"

namespace megatron::train {

class RunLog final : public RunListener {
 public:
  /// `console` is borrowed. Opens --log-json for appending; throws IoError.
  RunLog(const spec::RunSpec& run, std::int64_t total_iterations, metrics::Console& console);

  void line(const std::string& text) override;
  void step(const StepReport& report) override;
  void evaluation(const EvaluationReport& report) override;
  void peak(double flops_per_second) override;
  void profile(const StepProfile& profile) override;
  void figures(const metrics::RunFigures& figures) override;
  /// The line of an interval that was not full yet.
  void flush();
  /// Averages, throughput and peak memory of the run.
  void summary(const metrics::MemoryByKind& peak_memory);

 private:
  metrics::StepRecord record_of(const StepReport& report) const;

  const spec::RunSpec& run_;
  metrics::Console& console_;
  std::unique_ptr<metrics::JsonLog> json_;
  metrics::LogConfig config_;
  metrics::IntervalLog interval_;
  metrics::RunSummary summary_;
};

}  // namespace megatron::train
