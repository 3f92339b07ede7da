#include "schedule/chart.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace megatron::schedule {
namespace {

std::string label_of(const Program& program, const Instruction& pass) {
  const std::string text = to_text(pass);
  return program.placement.num_chunks > 1 ? text : text.substr(std::to_string(pass.stage).size());
}

/// Columns of the chart per unit of time: wide enough for the longest text in the shortest pass.
double columns_per_time(const Program& program, const Timeline& timeline) {
  double result = 0.0;
  for (std::size_t rank = 0; rank < program.lists.size(); ++rank)
    for (std::size_t i = 0; i < program.lists[rank].size(); ++i) {
      if (!is_compute(program.lists[rank][i].op)) continue;
      const Interval& interval = timeline.intervals[rank][i];
      const double width = static_cast<double>(label_of(program, program.lists[rank][i]).size() + 1);
      if (interval.end > interval.begin) result = std::max(result, width / (interval.end - interval.begin));
    }
  return result;
}

}  // namespace

std::string draw_chart(const Program& program, const Timeline& timeline, int max_columns, int max_rows) {
  const double scale = columns_per_time(program, timeline);
  const auto limit = static_cast<double>(max_columns) + 1.0;
  const auto column = [&](double time) {
    return static_cast<std::size_t>(std::llround(std::min(time * scale, limit)));
  };
  const std::size_t rows = std::min(program.lists.size(), static_cast<std::size_t>(max_rows));
  const std::size_t label_width = std::to_string(rows - 1).size();
  const std::size_t columns = column(timeline.total);
  const std::size_t width = std::min(columns, static_cast<std::size_t>(max_columns));
  std::string chart;
  for (std::size_t rank = 0; rank < rows; ++rank) {
    std::string line(columns, '.');
    for (std::size_t i = 0; i < program.lists[rank].size(); ++i) {
      const Instruction& instruction = program.lists[rank][i];
      if (!is_compute(instruction.op)) continue;
      const std::size_t begin = column(timeline.intervals[rank][i].begin);
      const std::size_t end = column(timeline.intervals[rank][i].end);
      if (begin >= columns) break;
      std::string text = label_of(program, instruction);
      text.resize(end - begin, ' ');
      line.replace(begin, end - begin, text);
    }
    const std::string number = std::to_string(rank);
    chart += str_cat("rank ", std::string(label_width - number.size(), ' '), number, " |", line.substr(0, width),
                     width < columns ? "…" : "|", "\n");
  }
  if (rows < program.lists.size()) chart += str_cat("… and ", program.lists.size() - rows, " more ranks\n");
  return chart;
}

}  // namespace megatron::schedule
