#include "schedule/instruction.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace megatron::schedule {
namespace {

TEST(Instruction, TextForms) {
  EXPECT_EQ(to_text({Op::forward, 0, 2}), "2F0");
  EXPECT_EQ(to_text({Op::send_backward, 1, 13}), "13sb1");
  EXPECT_EQ(parse_instruction("2F0"), (Instruction{Op::forward, 0, 2}));
  EXPECT_EQ(parse_instruction("13sb1"), (Instruction{Op::send_backward, 1, 13}));
}

TEST(Instruction, MessagesHaveTwoEnds) {
  EXPECT_EQ(to_text(counterpart(parse_instruction("2sf0"))), "3rf0");
  EXPECT_EQ(to_text(counterpart(parse_instruction("3rf0"))), "2sf0");
  EXPECT_EQ(to_text(counterpart(parse_instruction("3sb1"))), "2rb1");
  EXPECT_EQ(to_text(counterpart(parse_instruction("2rb1"))), "3sb1");
  EXPECT_THROW(counterpart(parse_instruction("2F0")), Error);
}

TEST(Instruction, EveryOpReadsBack) {
  for (const Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight, Op::send_forward,
                      Op::receive_forward, Op::send_backward, Op::receive_backward}) {
    const Instruction instruction{op, 4711, 3};
    EXPECT_EQ(parse_instruction(to_text(instruction)), instruction) << to_text(instruction);
  }
}

TEST(Instruction, BadTextIsRefusedByName) {
  for (const char* text : {"", "F0", "2F", "2X0", "-1F0", "2F0 ", "2F-1", "2f0", "2F0F", "99999999999999999999F0"}) {
    try {
      parse_instruction(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("'") + text + "'"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace megatron::schedule
