// megatron doctor as a user runs it.
#include <gtest/gtest.h>

#include "base/check.h"
#include "kernels/isa.h"
#include "support/shell_command.h"

namespace megatron {
namespace {

TEST(Doctor, SaysHowBfloat16IsMultipliedAndWhy) {
  const testing::CommandResult result = testing::run_command(str_cat("'", MEGATRON_BINARY, "' doctor 2>&1"));
  ASSERT_EQ(result.status, 0) << result.output;
  const std::string expected =
      str_cat("bf16 products  ", kernels::uses_pair_instruction() ? "pairs by instruction: " : "widened to float32: ",
              kernels::pair_instruction_reason(), "\n");
  EXPECT_NE(result.output.find(expected), std::string::npos) << result.output;
  EXPECT_NE(result.output.find(" in bfloat16 on all cores\n"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace megatron
