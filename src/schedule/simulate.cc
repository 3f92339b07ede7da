#include "schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "base/check.h"
#include "schedule/passes.h"

namespace megatron::schedule {
namespace {

double duration_of(Op op, std::size_t stage, const Durations& durations) {
  const double scale = durations.scale.empty() ? 1.0 : durations.scale[stage];
  switch (op) {
    case Op::forward:
      return durations.forward * scale;
    case Op::backward:
      return durations.backward * scale;
    case Op::backward_input:
      return durations.backward_input * scale;
    case Op::backward_weight:
      return durations.backward_weight * scale;
    default:
      return 0.0;
  }
}

/// Arrival times of messages that are under way, first in, first out.
struct Inbox {
  std::deque<double> forward, backward;
};

/// Runs `list` from `at` until it waits for a message that nobody has sent yet; true if it moved.
bool run_stage(const Program& program, std::size_t stage, const Durations& durations, std::vector<Inbox>& inboxes,
               std::size_t& at, double& now, Timeline& timeline) {
  const std::vector<Instruction>& list = program[stage];
  bool moved = false;
  for (; at < list.size(); ++at, moved = true) {
    const Op op = list[at].op;
    Interval& interval = timeline.intervals[stage][at];
    interval.begin = now;
    if (is_receive(op)) {
      std::deque<double>& box = op == Op::receive_forward ? inboxes[stage].forward : inboxes[stage].backward;
      if (box.empty()) return moved;
      now = std::max(now, box.front());
      box.pop_front();
    } else if (op == Op::send_forward) {
      inboxes[stage + 1].forward.push_back(now + durations.message);
    } else if (op == Op::send_backward) {
      inboxes[stage - 1].backward.push_back(now + durations.message);
    } else {
      const double duration = duration_of(op, stage, durations);
      now += duration;
      timeline.busy[stage] += duration;
    }
    interval.end = now;
  }
  return moved;
}

/// Columns of the chart per unit of time: wide enough for the longest text in the shortest pass.
double columns_per_time(const Program& program, const Timeline& timeline) {
  double result = 0.0;
  for (std::size_t stage = 0; stage < program.size(); ++stage)
    for (std::size_t i = 0; i < program[stage].size(); ++i) {
      if (!is_compute(program[stage][i].op)) continue;
      const Interval& interval = timeline.intervals[stage][i];
      const double width = static_cast<double>(std::to_string(program[stage][i].micro_batch).size() + 2);
      if (interval.end > interval.begin) result = std::max(result, width / (interval.end - interval.begin));
    }
  return result;
}

char letter_of(Op op) {
  return op == Op::forward ? 'F' : op == Op::backward ? 'B' : op == Op::backward_input ? 'I' : 'W';
}

}  // namespace

Timeline simulate(const Program& program, const Durations& durations) {
  MEGATRON_CHECK(durations.scale.empty() || durations.scale.size() == program.size(), "scales of the stages");
  Timeline timeline;
  timeline.busy.assign(program.size(), 0.0);
  for (const std::vector<Instruction>& list : program) timeline.intervals.emplace_back(list.size());
  std::vector<Inbox> inboxes(program.size());
  std::vector<std::size_t> at(program.size(), 0);
  std::vector<double> now(program.size(), 0.0);
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t stage = 0; stage < program.size(); ++stage)
      moved = run_stage(program, stage, durations, inboxes, at[stage], now[stage], timeline) || moved;
  }
  double busy = 0.0;
  for (std::size_t stage = 0; stage < program.size(); ++stage) {
    if (at[stage] < program[stage].size())
      throw Error(
          str_cat("pipeline schedule, stage ", stage, ": ", to_text(program[stage][at[stage]]), " waits for ever"));
    timeline.total = std::max(timeline.total, now[stage]);
    busy += timeline.busy[stage];
  }
  const double available = timeline.total * static_cast<double>(program.size());
  timeline.bubble = available > 0.0 ? 1.0 - busy / available : 0.0;
  return timeline;
}

double ideal_bubble(int num_stages, std::int64_t num_micro_batches) {
  return static_cast<double>(num_stages - 1) / static_cast<double>(num_micro_batches + num_stages - 1);
}

std::string draw_chart(const Program& program, const Timeline& timeline, int max_columns) {
  const double scale = columns_per_time(program, timeline);
  const auto column = [&](double time) { return static_cast<std::size_t>(std::llround(time * scale)); };
  const std::size_t label_width = std::to_string(program.size() - 1).size();
  const std::size_t width = std::min(column(timeline.total), static_cast<std::size_t>(max_columns));
  std::string chart;
  for (std::size_t stage = 0; stage < program.size(); ++stage) {
    std::string line(column(timeline.total), '.');
    for (std::size_t i = 0; i < program[stage].size(); ++i) {
      const Instruction& instruction = program[stage][i];
      if (!is_compute(instruction.op)) continue;
      const std::size_t begin = column(timeline.intervals[stage][i].begin);
      const std::size_t end = column(timeline.intervals[stage][i].end);
      std::string text = str_cat(letter_of(instruction.op), instruction.micro_batch);
      text.resize(end - begin, ' ');
      line.replace(begin, end - begin, text);
    }
    const std::string number = std::to_string(stage);
    chart += str_cat("stage ", std::string(label_width - number.size(), ' '), number, " |", line.substr(0, width),
                     width < line.size() ? "…" : "|", "\n");
  }
  return chart;
}

}  // namespace megatron::schedule
