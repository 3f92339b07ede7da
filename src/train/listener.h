// Who hears what a run tells. Called on the thread of global rank 0 only.
#pragma once

#include <string>

#include "metrics/records.h"
#include "train/report.h"
#include "train/step_profile.h"

namespace megatron::train {

class RunListener {
 public:
  virtual ~RunListener() = default;
  /// A line of its own: start-up phases, checkpoints, notices.
  virtual void line(const std::string& text) { (void)text; }
  /// After every step.
  virtual void step(const StepReport& report) { (void)report; }
  /// Rate of the matrix product on this machine, all ranks together, measured after the first step if asked for.
  virtual void peak(double flops_per_second) { (void)flops_per_second; }
  /// Where the time of the recorded steps went (--profile).
  virtual void profile(const StepProfile& profile) { (void)profile; }
  /// What the run cost: the last word of a run that trained.
  virtual void figures(const metrics::RunFigures& figures) { (void)figures; }
  virtual void evaluation(const EvaluationReport& report) { (void)report; }
};

}  // namespace megatron::train
