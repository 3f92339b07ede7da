// Times of a program when its passes take given durations, without running anything: length, bubble, a chart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/instruction.h"

namespace megatron::schedule {

/// Times of one stage's passes.
struct PassTimes {
  double forward = 1.0, backward_input = 1.0, backward_weight = 1.0;
};

/// Durations of a stage's passes, in any unit of time.
struct Durations {
  double forward = 1.0;
  double backward = 2.0;         // B
  double backward_input = 1.0;   // I
  double backward_weight = 1.0;  // W
  /// From the send to the moment when the other rank can use the tensor. Sending and receiving take no time on a rank.
  double message = 0.0;
  /// Passes of virtual stage s take scale[s] times as long (layers of the stage, say); empty: all 1.
  std::vector<double> scale = {};
  /// F, I and W of each virtual stage (B = I + W) instead of the common values; empty: those.
  std::vector<PassTimes> of_stage = {};
};

/// The duration of a pass; 0 for a message.
double duration_of(const Instruction& instruction, const Durations& durations);

struct Interval {
  double begin = 0.0, end = 0.0;
};

struct Timeline {
  std::vector<std::vector<Interval>> intervals;  // [rank][instruction]; a receive ends when its tensor is there
  double total = 0.0;                            // makespan
  std::vector<double> busy;                      // per rank, passes alone
  std::vector<double> span;                      // per rank, from the begin of its first pass to the end of its last
  /// Share of all ranks' time in which no pass runs: 1 − Σ busy / (ranks · total).
  double bubble = 0.0;

  double busiest() const;
  double longest_span() const;
  /// 1 − busiest ÷ longest span, and 1 − busiest ÷ total: what the rank that works most waits (arXiv 2401.10241 §5).
  double bubble_rate() const;
  double makespan_bubble_rate() const;
};

/// Every rank runs its list in order; sends do not wait. `program` is valid, or has passes alone and its messages are
/// added in thought (passes.h); throws Error where it deadlocks. With equal stages and free messages 1F1B and GPipe
/// give bubble (p − 1)/(m + p − 1) (arXiv 2104.04473 §2.2.1).
Timeline simulate(const Program& program, const Durations& durations);

/// (p − 1)/(m + p − 1): the bubble of 1F1B and GPipe.
double ideal_bubble(int num_stages, std::int64_t num_micro_batches);

}  // namespace megatron::schedule
