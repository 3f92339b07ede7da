// What a run cost, measured: peaks of memory, bytes on the wire, FLOPs. One per rank, from the first step on; the
// description predicts the same (schedule/run_costs.h).
#pragma once

#include <cstdint>

#include "metrics/records.h"
#include "train/assemble.h"

namespace megatron::train {

class RunMeasure {
 public:
  /// Borrowed; peaks of memory restart now.
  RunMeasure(RankParts& parts, comm::RankContext& context);

  void begin_step();
  /// What is sent from here until resume() is no part of the step.
  void pause();
  void resume();
  /// `counts`: the step changed weights and, but for what was left out, did nothing that others do not do, so its bytes
  /// on the wire are those of any step of as many micro-batches.
  void end_step(const pipeline::StepOutput& output, std::int64_t num_micro_batches, bool counts);

  /// A step of as many micro-batches, or of more, has counted.
  bool knows_step_of(std::int64_t num_micro_batches) const { return num_micro_batches <= largest_step_; }

  /// Of all ranks, on every rank (metrics::RunFigures says how). Collective.
  metrics::RunFigures collect() const;

 private:
  RankParts& parts_;
  comm::RankContext& context_;
  comm::TrafficCounters before_, paused_, of_step_;
  kernels::WorkCounters work_before_;
  std::int64_t largest_step_ = 0;  // micro-batches of the step in of_step_
  std::int64_t peak_chunk_stashes_ = 0, flops_ = 0, recomputed_flops_ = 0;
};

}  // namespace megatron::train
