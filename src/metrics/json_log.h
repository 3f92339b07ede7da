// `--log-json`: one JSON object per line and step, appended to a file by one rank.
//
// Floats have 17 significant digits, so that a reader gets back the same bits; what is not a finite number is null
// ("nan" says so). Each line is written whole and flushed; a resumed run appends.
#pragma once

#include <string>

#include "metrics/records.h"

namespace megatron::metrics {

/// {"iteration":…, "consumed_samples":…, "trained_tokens":…, "loss":…, "grad_norm":…, "lr":…, "tokens_per_second":…,
/// "step_seconds":…, "forward_seconds":…, "backward_seconds":…, "skipped":false, "nan":false, …}: one line, no newline.
/// A step without trained tokens has loss null.
std::string to_json(const StepRecord& record);
/// {"iteration":…, "validation_loss":…, "validation_tokens":…, "seconds":…}
std::string to_json(const EvalRecord& record);
/// {"summary": {"peak_bytes": {…}, "peak_rss_bytes":…, "communication_bytes_per_step": {"tp": {"all_reduce":…}, …},
/// "peak_chunk_stashes":…, "recomputed_flops":…, "model_flops":…}}: the last line of a run.
std::string to_json(const RunFigures& figures);

class JsonLog {
 public:
  /// Opens for appending. An unfinished last line, left by a killed run, is ended first. Throws IoError.
  explicit JsonLog(const std::string& path);
  ~JsonLog();
  JsonLog(const JsonLog&) = delete;
  JsonLog& operator=(const JsonLog&) = delete;

  void write(const StepRecord& record) { write_line(to_json(record)); }
  void write(const EvalRecord& record) { write_line(to_json(record)); }
  void write(const RunFigures& figures) { write_line(to_json(figures)); }
  /// Any other one-line object.
  void write_line(const std::string& json);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace megatron::metrics
