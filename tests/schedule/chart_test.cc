#include "schedule/chart.h"

#include <gtest/gtest.h>

#include "schedule/generators.h"

namespace megatron::schedule {
namespace {

std::string chart_of(const Program& program, int max_columns = 160, int max_rows = 64) {
  return draw_chart(program, simulate(program, {1.0, 2.0, 0, 0, 0.0}), max_columns, max_rows);
}

TEST(Chart, OneLinePerRank) {
  EXPECT_EQ(chart_of(one_f_one_b(2, 2)),
            "rank 0 |F0 F1 ......B0    ...B1    |\n"
            "rank 1 |...F0 B0    F1 B1    ......|\n");
}

TEST(Chart, LongLinesAndManyRanksAreCut) {
  EXPECT_EQ(chart_of(one_f_one_b(2, 2), 6),
            "rank 0 |F0 F1 …\n"
            "rank 1 |...F0 …\n");
  EXPECT_EQ(chart_of(one_f_one_b(2, 2), 6, 1),
            "rank 0 |F0 F1 …\n"
            "… and 1 more ranks\n");
}

TEST(Chart, SeveralStagesOnARankAreNamed) {
  EXPECT_EQ(chart_of(forward_only({2, 2, spec::PlacementKind::v}, 1)),
            "rank 0 |0F0 ........3F0 |\n"
            "rank 1 |....1F0 2F0 ....|\n");
}

TEST(Chart, PictureHasEveryPass) {
  const Program program = one_f_one_b(2, 3);
  const std::string svg = draw_svg(program, simulate(program, {}));
  EXPECT_EQ(svg.rfind("<svg xmlns=", 0), 0U);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  for (const auto& list : program.lists)
    for (const Instruction& pass : list)
      EXPECT_NE(svg.find("<title>" + to_text(pass) + "</title>"), std::string::npos) << to_text(pass);
}

}  // namespace
}  // namespace megatron::schedule
