// Records the steps that --profile and --trace ask for: one trace per rank, brought together at the first rank.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/trace.h"
#include "train/assemble.h"
#include "train/step_profile.h"

namespace megatron::train {

/// Belongs to one rank; every rank of a run has one and calls the same at the same step. Records the steps behind
/// --profile-step-start up to --profile-step-end. Nothing that is computed depends on it.
class StepRecorder {
 public:
  /// The first rank looks whether the file of --trace can be written. Throws IoError.
  StepRecorder(RankParts& parts, comm::RankContext& context);

  /// Records from its making to its end, if the iteration is one to record.
  class Step {
   public:
    Step(StepRecorder& recorder, std::int64_t iteration);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    StepRecorder* recorder_;  // null: not recorded
  };

  bool asked() const { return log_.profile || log_.trace.has_value(); }
  /// The last step to record is over, and finish() has not been called.
  bool complete() const { return recorded() && last_iteration_ >= log_.profile_step_end; }
  bool finished() const { return finished_; }
  /// There is something to finish.
  bool recorded() const { return trace_ != nullptr && !finished_; }

  /// Brings the records to the first rank and writes the file there. What the others get has no ranks. `lines`: what
  /// there is to say about the file. Collective over the world. Throws IoError.
  StepProfile finish(std::vector<std::string>& lines);

 private:
  void start();
  void write_trace(std::vector<std::string>& lines);

  RankParts& parts_;
  comm::RankContext& context_;
  const spec::LogSpec& log_;
  std::unique_ptr<Trace> trace_;
  std::int64_t first_iteration_ = 0, last_iteration_ = 0, num_steps_ = 0;
  std::int64_t shift_ns_ = 0;  // to the clock of the first rank, whose zero is the start of the recording
  bool finished_ = false;
};

/// What this machine gives a rank while all ranks work, the products measured for about `matmul_seconds` (0: not at
/// all). Collective over the world; the mean over the ranks, the same on all.
MachineLimits measure_limits(RankParts& parts, double matmul_seconds);

}  // namespace megatron::train
