// How long the passes of a pipeline take and how much of a step its busiest rank waits, beside what the simulator makes
// of the same times.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/engine.h"
#include "train/assemble.h"

namespace megatron::train {

/// Median seconds of one micro-batch's passes on a pipeline rank, all its virtual stages together; 0 where the schedule
/// has no such pass.
struct StageSeconds {
  double forward = 0, input_grad = 0, weight_grad = 0, backward = 0;  // F, I, W, B
};

struct PipelineFigures {
  std::vector<StageSeconds> ranks;  // of the pipeline
  /// 1 − the busiest rank's passes ÷ the longest span from a rank's first pass to its last: median over the steps.
  double bubble_rate = 0;
  /// The same of the schedule with the medians of each virtual stage's passes and messages that take no time.
  double simulated_bubble_rate = 0;
};

class PipelineMeter {
 public:
  /// One step of this rank.
  void add(const pipeline::StepTimes& times) { steps_.push_back(times); }
  /// Collective over the world; the same result on every rank, empty without steps. Of each pipeline rank the first
  /// tensor- and data-parallel one counts.
  PipelineFigures finish(RankParts& parts) const;

 private:
  std::vector<pipeline::StepTimes> steps_;
};

}  // namespace megatron::train
