// The lines of a training log: Megatron-LM's own fields in its own format, so that existing parsers go on working, and
// after them what this program adds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "metrics/records.h"

namespace megatron::metrics {

struct LogConfig {
  std::int64_t train_iters = 0;  // total of the run
  std::int64_t world_size = 1;
  bool log_throughput = false;         // --log-throughput: TFLOP/s per rank among Megatron-LM's fields
  double peak_flops_per_second = 0.0;  // measured, of all ranks; 0: unknown, no share is printed
};

/// "2024-01-31 17:05:09.123456", local time.
std::string format_timestamp(std::chrono::system_clock::time_point time);

/// Averages over the steps since the last line. Losses are averaged over the steps that changed weights and trained
/// tokens; learning rate, batch size and gradient norm are the last step's. A loss that is not a number is printed
/// "nan".
class IntervalLog {
 public:
  explicit IntervalLog(const LogConfig& config) : config_(config) {}
  void add(const StepRecord& record);
  bool empty() const { return steps_ == 0; }
  /// One line without newline for the steps since the last call, which it forgets.
  std::string take_line(std::chrono::system_clock::time_point now);

 private:
  std::string megatron_fields(std::chrono::system_clock::time_point now) const;
  std::string own_fields() const;

  LogConfig config_;
  StepRecord last_, sum_;  // sum_: times, tokens, FLOPs
  std::int64_t steps_ = 0, losses_ = 0, skipped_ = 0, nan_ = 0, redone_ = 0, all_masked_ = 0;
  double loss_sum_ = 0.0;
};

/// Megatron-LM's three lines for an evaluation, each ending in a newline. `where`: "" or e.g. " on test set".
/// PPL = exp(min(20, loss)).
std::string validation_lines(const EvalRecord& record, const std::string& where = "");

/// A line for the live display: iteration, loss, rate, time left.
std::string progress_text(const StepRecord& record, const LogConfig& config);

/// Totals of a run for the last words of its log.
class RunSummary {
 public:
  explicit RunSummary(const LogConfig& config) : config_(config) {}
  void add(const StepRecord& record);
  /// Several lines: average times per iteration, throughput, peak memory by kind.
  std::string text(const MemoryByKind& peak_memory) const;

 private:
  LogConfig config_;
  StepRecord sum_;
  std::int64_t steps_ = 0, skipped_ = 0, redone_ = 0;
  bool counts_redone_ = false;
};

}  // namespace megatron::metrics
