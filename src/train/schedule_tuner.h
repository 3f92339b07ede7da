// The pipeline program of a run's steps. With zb-auto and no given times it starts with equal ones, measures the passes
// of the third to the fifth step and searches again with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/engine.h"
#include "schedule/instruction.h"
#include "train/assemble.h"

namespace megatron::train {

class ScheduleTuner {
 public:
  /// `parts` outlive it.
  explicit ScheduleTuner(RankParts& parts);

  /// This rank's instructions for a step of so many micro-batches. Once times were measured, rank 0 makes the program
  /// and all others take it. Collective over the world. Writes --pipeline-schedule-out.
  std::vector<schedule::Instruction> program(std::int64_t num_micro_batches);

  /// Takes what the engine measured in a step; all ranks call it for each step in turn. True where the program must be
  /// fetched again: after the fifth step, in which all ranks together form the times. They are the medians of each
  /// rank's F, I and W of one micro-batch, and the shortest wait for a message, averaged over the ranks.
  bool observe(const pipeline::StepTimes& times);
  /// What there is to tell of the latest change: the times and the program.
  std::vector<std::string> describe() const;

 private:
  void share_times();
  schedule::Program share_program(std::int64_t num_micro_batches);
  void write(const schedule::Program& passes) const;

  RankParts& parts_;
  spec::ParallelSpec parallel_;
  bool measures_;
  std::int64_t steps_ = 0;
  std::vector<double> forward_, input_grad_, weight_grad_, receive_;  // seconds of the passes so far
  schedule::Program passes_;                                          // the latest, without communication
};

}  // namespace megatron::train
