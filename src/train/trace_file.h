// The file of --trace: what all ranks did in the recorded steps, in the JSON that Perfetto (ui.perfetto.dev) and
// chrome://tracing read. One process per rank, one track each: step → phases → kernels and communication.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/trace.h"

namespace megatron::train {

/// Written by the process of the first rank alone.
class TraceFile {
 public:
  /// Opens `path` for writing, its old content stays until begin(). Throws IoError.
  explicit TraceFile(std::string path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  const std::string& path() const { return path_; }
  /// Head, then the events of each rank, then the foot. Throw IoError.
  void begin();
  void begin_rank();
  void add(std::string_view text);
  void end();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  int fd_ = -1;
  bool has_rank_ = false;
};

/// The events of one rank as JSON objects with commas between. A time t is told as t + `shift_ns`, in microseconds.
std::string trace_events_json(const Trace& trace, int rank, const std::string& rank_name, std::int64_t shift_ns);

}  // namespace megatron::train
