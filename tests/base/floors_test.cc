// The includes of src/ keep to floors.txt; the check itself finds what breaks it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/shell_command.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using Outcome = testing::CommandResult;

Outcome check(const std::string& root) {
  return testing::run_command("bash '" + root + "/scripts/check-floors.sh' 2>&1");
}

TEST(Floors, IncludesKeepToThem) {
  const Outcome outcome = check(MEGATRON_SOURCE_DIR);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "folder borders are as floors.txt says\n");
}

/// What the check says of a tree of two folders, `low` below `high`, with one include in `file`.
Outcome check_include(const std::string& file, const std::string& include) {
  namespace fs = std::filesystem;
  const testing::TemporaryFolder folder;
  const fs::path root = folder.path();
  for (const char* name : {"scripts", "src/low", "src/high"}) fs::create_directories(root / name);
  fs::copy(fs::path(MEGATRON_SOURCE_DIR) / "scripts/check-floors.sh", root / "scripts/check-floors.sh");
  std::ofstream(root / "floors.txt") << "low:\nhigh: low\n";
  std::ofstream(root / "src" / file) << "#include " << include << "\n";
  return check(root);
}

TEST(Floors, TheCheckFindsWhatBreaksThem) {
  EXPECT_EQ(check_include("high/a.cc", "\"low/a.h\"").status, 0);
  EXPECT_EQ(check_include("low/a.cc", "\"high/a.h\"").output, "src/low/a.cc:1: low may not include high\n");
  EXPECT_EQ(check_include("low/a.inl", "\"high/a.h\"").status, 1);
  EXPECT_EQ(check_include("high/a.h", "<nlohmann/json.hpp>").output,
            "src/high/a.h:1: a public header includes a third-party header\n");
  EXPECT_EQ(check_include("high/a.cc", "<mpi.h>").status, 1);
  EXPECT_EQ(check_include("high/a.cc", "<hwy/highway.h>").status, 1);
}

}  // namespace
}  // namespace megatron
