// The pipeline program of a run's steps. With zb-auto and no given times it starts as 1F1B (in V
// placement as 1F1B-like passes within the memory limit), measures the passes of the
// third to the fifth step and searches with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
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

  /// Instructions of the latest list that may run before the step before is settled (schedule::repeatable_front).
  std::size_t repeatable() const { return repeatable_; }

  /// Takes what the engine measured in a step; all ranks call it for each step in turn. True where the program must be
  /// fetched again: after the fifth step, in which all ranks together form the times. They are the medians of each
  /// virtual stage's F, I and W, averaged over the ranks that hold it, and the shortest wait for a message, averaged
  /// over all ranks.
  bool observe(const pipeline::StepTimes& times);
  /// What there is to tell of the latest change: the times and the program.
  std::vector<std::string> describe() const;

 private:
  void share_times();
  schedule::Program share_program(std::int64_t num_micro_batches);
  void write(const schedule::Program& passes) const;

  RankParts& parts_;
  spec::ParallelSpec parallel_;
  double kept_;  // what a stash weighs between I and W where zb-auto searches
  bool measures_;
  std::int64_t steps_ = 0;
  std::size_t repeatable_ = 0;
  std::map<std::pair<int, schedule::Op>, std::vector<double>> passes_seconds_;  // of each virtual stage, so far
  std::vector<double> receive_seconds_;
  schedule::Program passes_;  // the latest, without communication
};

}  // namespace megatron::train
