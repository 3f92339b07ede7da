// Times of an instruction list when its passes take given durations, without running anything: length, bubble, a chart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/instruction.h"

namespace megatron::schedule {

/// Durations in any unit of time.
struct Durations {
  double forward = 1.0;
  double backward = 2.0;         // B
  double backward_input = 1.0;   // I
  double backward_weight = 1.0;  // W
  /// From the send to the moment when the neighbour can use the tensor. Sending and receiving take no time on a stage.
  double message = 0.0;
  /// Passes of stage s take scale[s] times as long (layers of the stage, say); empty: all 1.
  std::vector<double> scale = {};
};

struct Interval {
  double begin = 0.0, end = 0.0;
};

struct Timeline {
  std::vector<std::vector<Interval>> intervals;  // [stage][instruction]; a receive ends when its tensor is there
  double total = 0.0;
  std::vector<double> busy;  // per stage, passes alone
  /// Share of all stages' time in which no pass runs: 1 − Σ busy / (stages · total).
  double bubble = 0.0;
};

/// Every stage runs its list in order; sends do not wait. `program` is valid (passes.h); throws Error where it
/// deadlocks. With equal stages and free messages 1F1B and GPipe give bubble (p − 1)/(m + p − 1) (arXiv 2104.04473
/// §2.2.1).
Timeline simulate(const Program& program, const Durations& durations);

/// (p − 1)/(m + p − 1): the bubble of 1F1B and GPipe.
double ideal_bubble(int num_stages, std::int64_t num_micro_batches);

/// One line per stage, time from left to right, each pass drawn as its text over its duration ("F0", "B3"), idle time
/// as dots. Longer lines are cut at `max_columns` and end with "…".
std::string draw_chart(const Program& program, const Timeline& timeline, int max_columns = 160);

}  // namespace megatron::schedule
