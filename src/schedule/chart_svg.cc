// draw_svg of chart.h.
#include <algorithm>
#include <array>
#include <cstdio>

#include "base/check.h"
#include "schedule/chart.h"

namespace megatron::schedule {
namespace {

constexpr double kRowHeight = 22.0, kGap = 4.0, kLabelWidth = 60.0, kMargin = 8.0;
constexpr double kLeastPassWidth = 6.0, kMostWidth = 60000.0, kLeastWidth = 400.0, kTextWidth = 7.0;

/// Light to dark for the stages of a rank.
const char* colour_of(Op op, bool later_stage) {
  switch (op) {
    case Op::forward:
      return later_stage ? "#5b8fd6" : "#a9c7f0";
    case Op::backward_input:
      return later_stage ? "#3fae9a" : "#9fdccf";
    case Op::backward_weight:
      return later_stage ? "#7fae3f" : "#c6e29a";
    default:
      return later_stage ? "#3f9a5b" : "#9fd6ae";
  }
}

/// Points per unit of time: the shortest pass stays visible, the picture bounded.
double points_per_time(const Program& program, const Timeline& timeline) {
  double shortest = timeline.total;
  for (std::size_t rank = 0; rank < program.lists.size(); ++rank)
    for (std::size_t i = 0; i < program.lists[rank].size(); ++i) {
      const Interval& interval = timeline.intervals[rank][i];
      if (is_compute(program.lists[rank][i].op) && interval.end > interval.begin)
        shortest = std::min(shortest, interval.end - interval.begin);
    }
  if (timeline.total <= 0.0) return 1.0;
  const double wanted = 4.0 * kLeastPassWidth / shortest;
  return std::clamp(wanted, kLeastWidth / timeline.total, std::max(kMostWidth, kLeastWidth) / timeline.total);
}

void append_pass(std::string& svg, const Instruction& pass, const spec::StagePlacement& placement, double x,
                 double width, double y) {
  std::array<char, 320> text{};
  const std::string name = to_text(pass);
  const char* const colour = colour_of(pass.op, placement.chunk_of(pass.stage) > 0);
  std::snprintf(text.data(), text.size(),
                "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"#fff\" "
                "stroke-width=\"0.5\"><title>%s</title></rect>\n",
                x, y, width, kRowHeight, colour, name.c_str());
  svg += text.data();
  const std::string label = placement.num_chunks > 1 ? name : name.substr(std::to_string(pass.stage).size());
  if (static_cast<double>(label.size()) * kTextWidth > width) return;
  std::snprintf(text.data(), text.size(), "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                x + width / 2.0, y + kRowHeight - 7.0, label.c_str());
  svg += text.data();
}

}  // namespace

std::string draw_svg(const Program& program, const Timeline& timeline) {
  const double scale = points_per_time(program, timeline);
  const double width = kLabelWidth + timeline.total * scale + 2.0 * kMargin;
  const double height = static_cast<double>(program.lists.size()) * (kRowHeight + kGap) + 2.0 * kMargin;
  std::string svg = str_cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                            "\" font-family=\"sans-serif\" font-size=\"11\">\n",
                            "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  for (std::size_t rank = 0; rank < program.lists.size(); ++rank) {
    const double y = kMargin + static_cast<double>(rank) * (kRowHeight + kGap);
    svg += str_cat("<text x=\"", kMargin, "\" y=\"", y + kRowHeight - 7.0, "\">rank ", rank, "</text>\n");
    svg += str_cat("<rect x=\"", kLabelWidth + kMargin, "\" y=\"", y, "\" width=\"", timeline.total * scale,
                   "\" height=\"", kRowHeight, "\" fill=\"#eee\"/>\n");
    for (std::size_t i = 0; i < program.lists[rank].size(); ++i) {
      const Instruction& pass = program.lists[rank][i];
      const Interval& interval = timeline.intervals[rank][i];
      if (is_compute(pass.op))
        append_pass(svg, pass, program.placement, kLabelWidth + kMargin + interval.begin * scale,
                    (interval.end - interval.begin) * scale, y);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace megatron::schedule
