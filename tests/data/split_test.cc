#include "data/split.h"

#include "base/check.h"
#include "golden.h"

namespace megatron::data {
namespace {

using testing::Json;

std::string error_of(const char* text) {
  try {
    parse_split(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

using Range = std::pair<std::int64_t, std::int64_t>;

std::vector<Range> ranges_of(const char* text, std::int64_t n) {
  std::vector<Range> out;
  for (const auto& share : parse_split(text)) {
    if (!share) {
      out.push_back({-1, -1});
      continue;
    }
    const IndexRange range = split_range(*share, n);
    out.push_back({range.begin, range.end});
  }
  return out;
}

TEST(Split, RangesOfTheReference) {
  EXPECT_EQ(ranges_of("969, 30, 1", 10), (std::vector<Range>{{0, 10}, {10, 10}, {10, 10}}));
  EXPECT_EQ(ranges_of("969, 30, 1", 1000), (std::vector<Range>{{0, 969}, {969, 999}, {999, 1000}}));
  EXPECT_EQ(ranges_of("99,1,0", 1000), (std::vector<Range>{{0, 990}, {990, 1000}, {-1, -1}}));
  EXPECT_EQ(ranges_of("100,0,0", 7), (std::vector<Range>{{0, 7}, {-1, -1}, {-1, -1}}));
  EXPECT_EQ(ranges_of("1,1,1", 7), (std::vector<Range>{{0, 2}, {2, 5}, {5, 7}}));
  EXPECT_EQ(ranges_of("949,50,1", 10), (std::vector<Range>{{0, 9}, {9, 10}, {10, 10}}));
  EXPECT_EQ(ranges_of("0.8,0.1,0.1", 7), (std::vector<Range>{{0, 6}, {6, 6}, {6, 7}}));
  EXPECT_EQ(ranges_of(" 8, 1 ,1 ", 10), (std::vector<Range>{{0, 8}, {8, 9}, {9, 10}}));
  EXPECT_EQ(ranges_of("8 1 1", 10), ranges_of("8/1/1", 10));
}

TEST(Split, RefusesFieldsByName) {
  EXPECT_NE(error_of("-2,2,0").find("field '-2'"), std::string::npos);
  EXPECT_NE(error_of("70,x1,29").find("field 'x1'"), std::string::npos);
  EXPECT_NE(error_of("90,abc5,5").find("field 'abc5'"), std::string::npos);
  EXPECT_NE(error_of("1..5,2,3").find("field '1..5'"), std::string::npos);
  EXPECT_NE(error_of("1e3,2,3").find("field '1e3'"), std::string::npos);
  EXPECT_NE(error_of("99,,1").find("field ''"), std::string::npos);
  EXPECT_NE(error_of("1,2,3,4").find("field '4'"), std::string::npos);
  EXPECT_NE(error_of("0,0,0").find("'0', '0', '0'"), std::string::npos);
  EXPECT_NE(error_of("").find("field ''"), std::string::npos);
}

TEST(Split, AllReferenceStrings) {
  const auto path = testing::dataset_dir() / "split.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  const Json records = testing::load_json(path);
  int compared = 0;
  for (const auto& [text, record] : records.items()) {
    if (record.contains("error") || text == "-1,1,0" || text == "90,abc5,5") {
      // Refused here: signs and letters, which the reference skips, are mistakes.
      EXPECT_NE(error_of(text.c_str()), "") << text;
      continue;
    }
    const SplitMatrix matrix = parse_split(text);
    for (std::size_t i = 0; i < 3; ++i) {
      const Json& expected = record["ok"]["matrix"][i];
      ASSERT_EQ(matrix[i].has_value(), !expected.is_null()) << text;
      if (!matrix[i]) continue;
      EXPECT_EQ(matrix[i]->begin, expected[0].get<double>()) << text;
      EXPECT_EQ(matrix[i]->end, expected[1].get<double>()) << text;
      for (const auto& [count, ranges] : record["ok"]["ranges"].items()) {
        const IndexRange range = split_range(*matrix[i], std::stoll(count));
        EXPECT_EQ(range.begin, ranges[i][0].get<std::int64_t>()) << text << " n " << count;
        EXPECT_EQ(range.end, ranges[i][1].get<std::int64_t>()) << text << " n " << count;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace megatron::data
