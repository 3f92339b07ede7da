#include "schedule/program_text.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "schedule/generators.h"
#include "schedule/passes.h"
#include "schedule_text.h"

namespace megatron::schedule {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_program(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ProgramText, OneLinePerRank) {
  EXPECT_EQ(to_text(one_f_one_b(2, 2)), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(to_text(insert_communication(forward_only({2}, 1))), "0F0,0sf0\n1rf0,1F0\n");
  EXPECT_EQ(parse_program("0F0, 0F1 ,0B0,0B1\r\n\n 1F0,1B0,1F1,1B1"), one_f_one_b(2, 2));
}

TEST(ProgramText, EveryScheduleReadsBack) {
  for (const Program& program : {one_f_one_b(1, 1), one_f_one_b(4, 6), gpipe({3}, 4), interleaved(4, 2, 8, 4),
                                 interleaved(2, 3, 4, 2), zb_h1(3, 5), zb_h2(3, 6), zb_v(2, 3), zb_v(5, 9)})
    EXPECT_EQ(parse_program(to_text(program)), program) << to_text(program);
}

TEST(ProgramText, NamesLineAndInstruction) {
  EXPECT_EQ(refusal(""), "no rank: one line of passes per rank is expected, as in 0F0,0B0");
  EXPECT_NE(refusal("0F0,0B0\n1F0,1X0").find("line 2: '1X0' is not an instruction"), std::string::npos);
  EXPECT_NE(refusal("0F0,,0B0").find("line 1: '' is not an instruction"), std::string::npos);
  EXPECT_EQ(refusal("0F0,0sf0"), "line 1: 0sf0: sends and receives are added by the program; leave them out");
  EXPECT_EQ(refusal("0F0,2000000000B0"), "line 1: 2000000000B0 is of a stage beyond 1048576");
}

/// Whatever bytes come, they are a program, or refused in one line.
TEST(ProgramText, DamagedTextNeverDoesHarm) {
  const std::string good = to_text(zb_v(3, 6));
  const std::string letters = "0123456789FBIWsfrb,\n -\t\xff";
  std::uint64_t state = 42;
  const auto next = [&state](std::size_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(state >> 33) % n;
  };
  int accepted = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (std::size_t k = 0; k <= next(4); ++k) text[next(text.size())] = letters[next(letters.size())];
    if (next(8) == 0) text.resize(next(text.size()));
    try {
      validate(insert_communication(parse_program(text)));
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
  EXPECT_GT(accepted, 0);  // a blank more does no harm
}

TEST(ProgramText, FilesAreChecked) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "megatron_program_text_test.txt";
  std::ofstream(path) << to_text(zb_v(2, 3));
  EXPECT_EQ(read_program(path.string()), zb_v(2, 3));
  std::ofstream(path) << "0F0,0B0\n1F0\n";
  try {
    read_program(path.string());
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), path.string() + ": pipeline schedule, rank 1: 1B0 (or I and W) is missing");
  }
  std::filesystem::remove(path);
  EXPECT_THROW(read_program(path.string()), IoError);
}

}  // namespace
}  // namespace megatron::schedule
