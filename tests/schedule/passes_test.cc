#include "schedule/passes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "schedule/generators.h"
#include "schedule_text.h"

namespace megatron::schedule {
namespace {

const spec::StagePlacement kV2{2, 2, spec::PlacementKind::v};
const spec::StagePlacement kInterleaved2{2, 2};

/// The message of the error that validate() throws.
std::string refusal_of(const Program& program) {
  try {
    validate(program);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}
std::string refusal(const std::vector<std::string>& ranks) { return refusal_of(program_of(ranks)); }
std::string refusal(const spec::StagePlacement& placement, const std::vector<std::string>& ranks) {
  return refusal_of(program_of(placement, ranks));
}

TEST(Passes, AcceptsWhatIsComplete) {
  EXPECT_EQ(refusal({"0F0 0B0"}), "accepted");
  EXPECT_EQ(refusal({"0F1 0F0 0B0 0B1"}), "accepted");
  EXPECT_EQ(refusal({"0F0 0sf0 0rb0 0B0", "1rf0 1F0 1B0 1sb0"}), "accepted");
  EXPECT_EQ(refusal({"0F0 0sf0 0rb0 0I0 0W0", "1rf0 1F0 1I0 1sb0 1W0"}), "accepted");
  EXPECT_EQ(refusal({"0F0 0sf0", "1rf0 1F0"}), "accepted");
  EXPECT_EQ(refusal(kV2, {"0F0 0sf0 3rf0 3F0 3B0 3sb0 0rb0 0B0", "1rf0 1F0 2F0 2sf0 2rb0 2B0 1B0 1sb0"}), "accepted");
}

TEST(Passes, NamesRankInstructionAndRule) {
  const std::string rank_0 = "pipeline schedule, rank 0: ", rank_1 = "pipeline schedule, rank 1: ";
  EXPECT_EQ(refusal({"0B0 0F0"}), rank_0 + "0B0 comes before its F");
  EXPECT_EQ(refusal({"0F0 0F0 0B0"}), rank_0 + "0F0 comes twice");
  EXPECT_EQ(refusal({"0F0 0B0 0B0"}), rank_0 + "0B0 comes after its backward pass was complete");
  EXPECT_EQ(refusal({"0F0 0F1 0B0"}), rank_0 + "0B1 (or I and W) is missing");
  EXPECT_EQ(refusal({"0F0 0W0"}), rank_0 + "0W0 comes before its I");
  EXPECT_EQ(refusal({"0F0 0I0"}), rank_0 + "0W0 is missing");
  EXPECT_EQ(refusal({"0F0 0I0 0B0"}), rank_0 + "0B0 comes after its I");
  EXPECT_EQ(refusal({"0F0 0F2"}), rank_0 + "0F2 is outside the 2 micro-batches");
  EXPECT_EQ(refusal({"0F0 1F0"}), rank_0 + "1F0 is of stage 1, the pipeline has 1 stage");
  EXPECT_EQ(refusal({"1F0", "0F0"}), rank_0 + "1F0 is of stage 1, which stands on rank 1");
  EXPECT_EQ(refusal({"0B0"}), rank_0 + "no micro-batch");
  EXPECT_EQ(refusal({"0F0 0F1 0B1 0B0"}),
            rank_0 + "0B0 comes after that of micro-batch 1: gradients are added in ascending order");
  EXPECT_EQ(refusal({"0F0 0F1 0I0 0I1 0W1 0W0"}),
            rank_0 + "0W0 comes after that of micro-batch 1: gradients are added in ascending order");
  EXPECT_EQ(refusal({"0F0 0F1 0I0 0B1 0W0"}),
            rank_0 + "0W0 comes after that of micro-batch 1: gradients are added in ascending order");
  EXPECT_EQ(refusal({"0F0 0sf0", "1F0"}), rank_1 + "1F0 needs 1rf0");
  EXPECT_EQ(refusal({"0F0", "1rf0 1F0"}), rank_0 + "0F0 needs 0sf0");
  EXPECT_EQ(refusal({"0sf0 0F0", "1rf0 1F0"}), rank_0 + "0sf0 comes before 0F0");
  EXPECT_EQ(refusal({"0F0 0sf0", "1F0 1rf0"}), rank_1 + "1rf0 comes after 1F0");
  EXPECT_EQ(refusal({"0F0 0sf0"}), rank_0 + "0sf0 has no neighbour on another rank");
  EXPECT_EQ(refusal({"0F0 0sf0 0rb0", "1rf0 1F0"}), rank_0 + "0rb0 belongs to no pass");
  EXPECT_EQ(refusal({"0F0 0sf0 0sf0", "1rf0 1F0"}), rank_0 + "0sf0 comes twice");
}

TEST(Passes, TensorsOfOneRankNeedNoMessage) {
  EXPECT_EQ(refusal(kV2, {"0F0 0sf0 3rf0 3F0", "1rf0 2F0 1F0 2sf0"}),
            "pipeline schedule, rank 1: 2F0 comes before 1F0, which it needs");
  EXPECT_EQ(refusal(kV2, {"0F0 0sf0 3rf0 3F0 3B0 3sb0 0rb0 0B0", "1rf0 1F0 2F0 2sf0 2rb0 1B0 2B0 1sb0"}),
            "pipeline schedule, rank 1: 1B0 comes before 2B0 (or I), which it needs");
  EXPECT_EQ(refusal(kV2, {"0F0 0sf0 3rf0 3F0", "1rf0 1F0 1sf0 2F0 2sf0"}),
            "pipeline schedule, rank 1: 1sf0 has no neighbour on another rank");
}

TEST(Passes, PairsMessagesFirstInFirstOut) {
  EXPECT_EQ(refusal({"0F0 0sf0 0F1 0sf1", "1rf1 1F1 1rf0 1F0"}),
            "pipeline schedule, rank 1: 1rf1 is not in the order of the sends of rank 0, which sends 0sf0 then");
  // With two ranks both kinds of messages go from rank 1 to rank 0.
  EXPECT_EQ(refusal(kInterleaved2,
                    {"0F0 0sf0 2rf0 2F0 2sf0 2rb0 2B0 2sb0 0rb0 0B0", "1rf0 1F0 1sf0 3rf0 3F0 3B0 3sb0 1rb0 1B0 1sb0"}),
            "accepted");
  EXPECT_EQ(refusal(kInterleaved2,
                    {"0F0 0sf0 2rb0 2rf0 2F0 2sf0 2B0 2sb0 0rb0 0B0", "1rf0 1F0 1sf0 3rf0 3F0 3B0 3sb0 1rb0 1B0 1sb0"}),
            "pipeline schedule, rank 0: 2rb0 is not in the order of the sends of rank 1, which sends 1sf0 then");
}

TEST(Passes, FindsDeadlocks) {
  // Rank 1 wants its second input before it gives the gradient that rank 0 waits for.
  EXPECT_EQ(refusal({"0F0 0sf0 0rb0 0B0 0F1 0sf1 0rb1 0B1", "1rf0 1F0 1rf1 1F1 1B0 1sb0 1B1 1sb1"}),
            "pipeline schedule, rank 0: deadlock: 0rb0 (before 0B0) waits for 1sb0, but rank 1 waits at 1rf1 (before "
            "1F1)");
}

TEST(Passes, ReceivesKeepTheOrderOfTheSends) {
  // Rank 1 sends 1sf0 before 1sf1, rank 0 uses them the other way round: 2rf0 moves before 2F1.
  const Program program = insert_communication(program_of(kInterleaved2, {"0F0 0F1 2F1 2F0", "1F0 1F1 3F1 3F0"}));
  EXPECT_EQ(text_of(program.lists[0]), "0F0 0sf0 0F1 0sf1 2rf0 2rf1 2F1 2sf1 2F0 2sf0");
  EXPECT_EQ(text_of(program.lists[1]), "1rf0 1F0 1sf0 1rf1 1F1 1sf1 3rf1 3F1 3rf0 3F0");
  EXPECT_EQ(refusal_of(program), "accepted");
}

TEST(Passes, CommunicationOfAV) {
  const Program program = insert_communication(program_of(kV2, {"0F0 3F0 3I0 0I0 3W0 0W0", "1F0 2F0 2I0 1I0 2W0 1W0"}));
  EXPECT_EQ(text_of(program.lists[0]), "0F0 0sf0 3rf0 3F0 3I0 3sb0 0rb0 0I0 3W0 0W0");
  EXPECT_EQ(text_of(program.lists[1]), "1rf0 1F0 2F0 2sf0 2rb0 2I0 1I0 1sb0 2W0 1W0");
  EXPECT_EQ(refusal_of(program), "accepted");
  EXPECT_THROW(insert_communication(program), Error);
}

TEST(Passes, LiveStashesOfOneForwardOneBackward) {
  for (int ranks = 1; ranks <= 6; ++ranks)
    for (std::int64_t m = 1; m <= 9; ++m) {
      const Program program = one_f_one_b(ranks, m);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(max_live_stashes(program.lists[static_cast<std::size_t>(rank)]),
                  std::min<std::int64_t>(m, ranks - rank));
    }
  EXPECT_EQ(max_live_stashes(gpipe({3}, 7).lists[1]), 7);
  EXPECT_EQ(max_live_stashes(gpipe({3, 2}, 7).lists[1]), 14);
  EXPECT_EQ(max_live_stashes(forward_only({3}, 7).lists[1]), 0);
  EXPECT_EQ(max_live_stashes(list_of("0F0 0I0 0F1 0W0 0I1 0W1")), 2);
}

TEST(Passes, StashesByWeight) {
  const auto list = list_of("0F0 0F1 0I0 0F2 0I1 0W0 0I2 0W1 0W2");
  EXPECT_EQ(max_stash_weight(list, 1.0), 3.0);
  EXPECT_EQ(max_stash_weight(list, 0.5), 2.5);
  EXPECT_EQ(max_stash_weight(list, 0.0), 2.0);
  EXPECT_NO_THROW(check_memory({{1}, {list}}, 2.5, 0.5));
  try {
    check_memory({{1}, {list}}, 2.0, 0.5);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "pipeline schedule, rank 0: 0F2 makes 2.5 stashes, more than the 2 of --pipeline-memory-limit 2");
  }
}

TEST(Passes, FrontsThatMayRunTwice) {
  using Ends = std::vector<std::size_t>;
  EXPECT_EQ(repeatable_front(insert_communication(one_f_one_b(1, 4))), Ends{0});
  // 0F0 0sf0 0F1 | 0sf1, which rank 1 receives only after 1F0, the last stage's.
  EXPECT_EQ(repeatable_front(insert_communication(gpipe({2}, 3))), (Ends{3, 1}));
  EXPECT_EQ(repeatable_front(insert_communication(zb_h2(4, 8))), (Ends{7, 8, 5, 1}));
  const std::vector<Program> programs = {one_f_one_b(4, 8), zb_h1(4, 8), gpipe({3}, 5), interleaved(4, 2, 8, 4),
                                         zb_v(4, 8),        zb_v(2, 3),  zb_h2(5, 2)};
  for (const Program& passes : programs) {
    const Program program = insert_communication(passes);
    const Ends ends = repeatable_front(program);
    std::vector<Instruction> open;  // messages without their other end
    for (std::size_t rank = 0; rank < ends.size(); ++rank)
      for (std::size_t i = 0; i < ends[rank]; ++i) {
        const Instruction& instruction = program.lists[rank][i];
        EXPECT_TRUE(instruction.op == Op::forward || instruction.op == Op::send_forward ||
                    instruction.op == Op::receive_forward);
        if (instruction.op == Op::forward) {
          EXPECT_LT(instruction.stage + 1, program.placement.num_stages());
          continue;
        }
        const auto other = std::find(open.begin(), open.end(), counterpart(instruction));
        if (other == open.end())
          open.push_back(instruction);
        else
          open.erase(other);
      }
    EXPECT_TRUE(open.empty()) << to_text(open.empty() ? Instruction{} : open.front());
    EXPECT_GT(ends[0], 0U);
  }
}

TEST(Passes, SplitsBackwardPasses) {
  EXPECT_EQ(split_backward(program_of({"0F0 0B0", "1F0 1I0 1W0"})), program_of({"0F0 0I0 0W0", "1F0 1I0 1W0"}));
}

TEST(Passes, PendingWeightPasses) {
  EXPECT_EQ(max_pending_weight_passes(list_of("0F0 0F1 0I0 0I1 0W0 0W1")), 2);
  EXPECT_EQ(max_pending_weight_passes(list_of("0F0 0F1 0I0 0W0 0I1 0W1")), 1);
  EXPECT_EQ(max_pending_weight_passes(one_f_one_b(3, 5).lists[0]), 0);
}

}  // namespace
}  // namespace megatron::schedule
