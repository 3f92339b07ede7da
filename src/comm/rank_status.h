// What one rank is doing, published by its own thread for the watchdog and for error lines.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "comm/request.h"

namespace megatron::comm {

enum class RankPhase : std::uint8_t { running, posting, waiting, finished, failed };

/// A copy of a rank's record. `serial` changes whenever the rank has moved on.
struct RankRecord {
  std::string instruction;  // from note_progress
  std::int64_t iteration = -1;
  std::string operation;  // "all_reduce #12 \"label\" in tp": waited for, or posted last
  RankPhase phase = RankPhase::running;
  std::uint64_t serial = 0;
  double seconds = 0;  // since the phase last changed

  /// For error lines: the operation, or the instruction before any operation.
  std::string where() const;
};

/// Written by the rank's thread, read by any.
class RankStatus {
 public:
  void note_progress(std::string_view what, std::int64_t iteration);
  std::int64_t iteration() const;
  /// Enters `phase` (posting or waiting) with an operation; running() leaves it. A rank that throws stays in its phase.
  void enter(RankPhase phase, const std::string& group, std::int64_t sequence, OperationKind kind,
             const std::string& label);
  void running();
  void end(RankPhase phase);
  RankRecord record() const;

 private:
  mutable std::mutex mutex_;
  std::string instruction_;
  std::int64_t iteration_ = -1;
  std::string group_, label_;
  OperationKind kind_ = OperationKind::barrier;
  std::int64_t sequence_ = -1;
  RankPhase phase_ = RankPhase::running;
  std::uint64_t serial_ = 0;
  Clock::time_point since_ = Clock::now();
};

/// "all_reduce #12 \"label\" in tp"
std::string operation_text(const std::string& group, std::int64_t sequence, OperationKind kind,
                           const std::string& label);

}  // namespace megatron::comm
