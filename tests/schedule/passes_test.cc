#include "schedule/passes.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "schedule/generators.h"
#include "schedule_text.h"

namespace megatron::schedule {
namespace {

/// The message of the error that validate() throws for these stages.
std::string refusal(const std::vector<std::string>& stages) {
  Program program;
  for (const std::string& stage : stages) program.push_back(list_of(stage));
  try {
    validate(program);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Passes, AcceptsWhatIsComplete) {
  EXPECT_EQ(refusal({"0F0 0B0"}), "accepted");
  EXPECT_EQ(refusal({"0F0 1F0 1B0 0B0"}), "accepted");
  EXPECT_EQ(refusal({"0F0 0sf0 0rb0 0B0", "0rf0 0F0 0B0 0sb0"}), "accepted");
  EXPECT_EQ(refusal({"0F0 0sf0 0rb0 0I0 0W0", "0rf0 0F0 0I0 0sb0 0W0"}), "accepted");
  EXPECT_EQ(refusal({"0F0 0sf0", "0rf0 0F0"}), "accepted");
}

TEST(Passes, NamesStageInstructionAndRule) {
  EXPECT_EQ(refusal({"0B0 0F0"}), "pipeline schedule, stage 0: 0B0 comes before its F");
  EXPECT_EQ(refusal({"0F0 0F0 0B0"}), "pipeline schedule, stage 0: 0F0 comes twice");
  EXPECT_EQ(refusal({"0F0 0B0 0B0"}), "pipeline schedule, stage 0: 0B0 comes after its backward pass was complete");
  EXPECT_EQ(refusal({"0F0 1F0 0B0"}), "pipeline schedule, stage 0: the backward pass of micro-batch 1 is missing");
  EXPECT_EQ(refusal({"0F0 0W0"}), "pipeline schedule, stage 0: 0W0 comes before its I");
  EXPECT_EQ(refusal({"0F0 0I0"}), "pipeline schedule, stage 0: the backward pass of micro-batch 0 is missing");
  EXPECT_EQ(refusal({"0F0 0I0 0B0"}), "pipeline schedule, stage 0: 0B0 comes after its I");
  EXPECT_EQ(refusal({"0F0 2F0"}), "pipeline schedule, stage 0: 2F0 is outside the 2 micro-batches");
  EXPECT_EQ(refusal({"0F1"}), "pipeline schedule, stage 0: 0F1 is of chunk 1, stages have one");
  EXPECT_EQ(refusal({"0F0 0sf0", "0F0"}), "pipeline schedule, stage 1: 0F0 needs 0rf0");
  EXPECT_EQ(refusal({"0F0", "0rf0 0F0"}), "pipeline schedule, stage 0: 0F0 needs 0sf0");
  EXPECT_EQ(refusal({"0sf0 0F0", "0rf0 0F0"}), "pipeline schedule, stage 0: 0sf0 comes before 0F0");
  EXPECT_EQ(refusal({"0F0 0sf0", "0F0 0rf0"}), "pipeline schedule, stage 1: 0rf0 comes after 0F0");
  EXPECT_EQ(refusal({"0F0 0sf0"}), "pipeline schedule, stage 0: 0sf0 has no neighbour");
  EXPECT_EQ(refusal({"0F0 0sf0 0sf0", "0rf0 0F0"}), "pipeline schedule, stage 0: 0sf0 comes twice");
}

TEST(Passes, PairsMessagesFirstInFirstOut) {
  EXPECT_EQ(refusal({"0F0 0sf0 1F0 1sf0", "1rf0 1F0 0rf0 0F0"}),
            "pipeline schedule, stage 0: the order of its sf is not that of the rf of stage 1");
  EXPECT_EQ(refusal({"0F0 0sf0 1F0 1sf0 1rb0 1B0 0rb0 0B0", "0rf0 0F0 1rf0 1F0 0B0 0sb0 1B0 1sb0"}),
            "pipeline schedule, stage 0: the order of its rb is not that of the sb of stage 1");
}

TEST(Passes, FindsDeadlocks) {
  // Stage 1 wants its second input before it gives the gradient that stage 0 waits for.
  EXPECT_EQ(refusal({"0F0 0sf0 0rb0 0B0 1F0 1sf0 1rb0 1B0", "0rf0 0F0 1rf0 1F0 0B0 0sb0 1B0 1sb0"}),
            "pipeline schedule, stage 0: deadlock at 0rb0 when each send waits for its receive");
}

TEST(Passes, LiveStashesOfOneForwardOneBackward) {
  for (int stages = 1; stages <= 6; ++stages)
    for (std::int64_t m = 1; m <= 9; ++m) {
      const Program program = one_f_one_b(stages, m);
      for (int stage = 0; stage < stages; ++stage)
        EXPECT_EQ(max_live_stashes(program[static_cast<std::size_t>(stage)]),
                  std::min<std::int64_t>(m, stages - stage));
    }
  EXPECT_EQ(max_live_stashes(gpipe(3, 7)[1]), 7);
  EXPECT_EQ(max_live_stashes(forward_only(3, 7)[1]), 0);
  EXPECT_EQ(max_live_stashes(list_of("0F0 0I0 1F0 0W0 1I0 1W0")), 2);
}

}  // namespace
}  // namespace megatron::schedule
