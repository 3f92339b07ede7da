#include "base/exit_status.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace megatron {
namespace {

TEST(ExitStatus, ByKindOfError) {
  EXPECT_EQ(exit_status(ConfigError("x")), 2);
  EXPECT_EQ(exit_status(CommError("x")), 3);
  EXPECT_EQ(exit_status(IoError("x")), 1);
  EXPECT_EQ(exit_status(Error("x")), 1);
  EXPECT_EQ(exit_status(std::bad_alloc()), 1);
}

}  // namespace
}  // namespace megatron
