#include "schedule/simulate.h"

#include <algorithm>

#include "base/check.h"
#include "schedule/pass_table.h"
#include "schedule/passes.h"

namespace megatron::schedule {
namespace {

constexpr double kNotDone = -1.0;

class Simulation {
 public:
  Simulation(const Program& program, const Durations& durations, std::int64_t m)
      : program_(program),
        durations_(durations),
        forward_ends_(program.placement, m, kNotDone),
        backward_ends_(program.placement, m, kNotDone),
        at_(program.lists.size(), 0),
        now_(program.lists.size(), 0.0) {
    timeline_.busy.assign(program.lists.size(), 0.0);
    for (const std::vector<Instruction>& list : program.lists) timeline_.intervals.emplace_back(list.size());
  }

  Timeline run() {
    for (std::size_t rank = program_.lists.size(); rank-- > 0;) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const std::size_t rank = runnable_.back();
      runnable_.pop_back();
      advance(rank);
    }
    for (std::size_t rank = 0; rank < program_.lists.size(); ++rank)
      if (at_[rank] < program_.lists[rank].size())
        throw Error(str_cat("pipeline schedule, rank ", rank, ": ", to_text(program_.lists[rank][at_[rank]]),
                            " waits for ever"));
    summarize();
    return std::move(timeline_);
  }

 private:
  /// Runs a rank until it waits for a tensor that does not exist yet.
  void advance(std::size_t rank) {
    const std::vector<Instruction>& list = program_.lists[rank];
    double& now = now_[rank];
    for (; at_[rank] < list.size(); ++at_[rank]) {
      const Instruction& instruction = list[at_[rank]];
      const double ready = ready_at(instruction);
      if (ready == kNotDone) return;
      const double duration = duration_of(instruction, durations_);
      Interval& interval = timeline_.intervals[rank][at_[rank]];
      interval.begin = is_compute(instruction.op) ? std::max(now, ready) : now;
      interval.end = std::max(now, ready) + duration;
      now = interval.end;
      timeline_.busy[rank] += duration;
      if (is_compute(instruction.op)) finish(instruction, rank, now);
    }
  }

  /// When the tensor is there that an instruction waits for.
  double ready_at(const Instruction& instruction) {
    if (instruction.op == Op::backward_weight || is_send(instruction.op)) return 0.0;
    const bool forward = instruction.op == Op::forward || instruction.op == Op::receive_forward;
    const int source = forward ? instruction.stage - 1 : instruction.stage + 1;
    const spec::StagePlacement& placement = program_.placement;
    if (source < 0 || source >= placement.num_stages()) return 0.0;
    const double end = (forward ? forward_ends_ : backward_ends_).at(source, instruction.micro_batch);
    if (end == kNotDone || placement.rank_of(source) == placement.rank_of(instruction.stage)) return end;
    return end + durations_.message;
  }

  void finish(const Instruction& pass, std::size_t rank, double now) {
    if (pass.op == Op::backward_weight) return;
    const bool forward = pass.op == Op::forward;
    (forward ? forward_ends_ : backward_ends_).at(pass) = now;
    const int target = forward ? pass.stage + 1 : pass.stage - 1;
    if (target < 0 || target >= program_.placement.num_stages()) return;
    const auto other = static_cast<std::size_t>(program_.placement.rank_of(target));
    if (other != rank && waits_for(other, target, pass.micro_batch, forward)) runnable_.push_back(other);
  }

  bool waits_for(std::size_t rank, int stage, std::int64_t micro_batch, bool forward) const {
    if (at_[rank] >= program_.lists[rank].size()) return false;
    const Instruction& next = program_.lists[rank][at_[rank]];
    const bool takes_forward = next.op == Op::forward || next.op == Op::receive_forward;
    return next.stage == stage && next.micro_batch == micro_batch && takes_forward == forward;
  }

  void summarize() {
    double busy = 0.0;
    for (std::size_t rank = 0; rank < program_.lists.size(); ++rank) {
      double begin = now_[rank];
      for (std::size_t i = program_.lists[rank].size(); i-- > 0;)
        if (is_compute(program_.lists[rank][i].op)) begin = timeline_.intervals[rank][i].begin;
      timeline_.span.push_back(now_[rank] - begin);
      timeline_.total = std::max(timeline_.total, now_[rank]);
      busy += timeline_.busy[rank];
    }
    const double available = timeline_.total * static_cast<double>(program_.lists.size());
    timeline_.bubble = available > 0.0 ? 1.0 - busy / available : 0.0;
  }

  const Program& program_;
  const Durations& durations_;
  PassTable<double> forward_ends_, backward_ends_;
  std::vector<std::size_t> at_, runnable_;
  std::vector<double> now_;
  Timeline timeline_;
};

double largest(const std::vector<double>& values) {
  return values.empty() ? 0.0 : *std::max_element(values.begin(), values.end());
}

}  // namespace

double duration_of(const Instruction& instruction, const Durations& durations) {
  const auto stage = static_cast<std::size_t>(instruction.stage);
  const double scale = durations.scale.empty() ? 1.0 : durations.scale[stage];
  PassTimes times{durations.forward, durations.backward_input, durations.backward_weight};
  double backward = durations.backward;
  if (!durations.of_stage.empty()) {
    times = durations.of_stage[stage];
    backward = times.backward_input + times.backward_weight;
  }
  switch (instruction.op) {
    case Op::forward:
      return times.forward * scale;
    case Op::backward:
      return backward * scale;
    case Op::backward_input:
      return times.backward_input * scale;
    case Op::backward_weight:
      return times.backward_weight * scale;
    default:
      return 0.0;
  }
}

double Timeline::busiest() const { return largest(busy); }
double Timeline::longest_span() const { return largest(span); }
double Timeline::bubble_rate() const {
  const double longest = longest_span();
  return longest > 0.0 ? 1.0 - busiest() / longest : 0.0;
}
double Timeline::makespan_bubble_rate() const { return total > 0.0 ? 1.0 - busiest() / total : 0.0; }

Timeline simulate(const Program& program, const Durations& durations) {
  MEGATRON_CHECK(durations.scale.empty() || std::ssize(durations.scale) == program.placement.num_stages(),
                 "scales of the stages");
  MEGATRON_CHECK(durations.of_stage.empty() || std::ssize(durations.of_stage) == program.placement.num_stages(),
                 "times of the stages");
  std::int64_t most = 0;
  for (const std::vector<Instruction>& list : program.lists)
    for (const Instruction& instruction : list) {
      MEGATRON_CHECK(
          instruction.stage >= 0 && instruction.stage < program.placement.num_stages() && instruction.micro_batch >= 0,
          to_text(instruction), " is outside the pipeline");
      most = std::max(most, instruction.micro_batch);
    }
  return Simulation(program, durations, most + 1).run();
}

double ideal_bubble(int num_stages, std::int64_t num_micro_batches) {
  return static_cast<double>(num_stages - 1) / static_cast<double>(num_micro_batches + num_stages - 1);
}

}  // namespace megatron::schedule
