// Text that no user would write: reading it never throws, crashes or hangs, and never passes in silence.
#include <gtest/gtest.h>

#include <random>

#include "config/input.h"
#include "config/summary.h"

namespace megatron::config {
namespace {

constexpr const char* kPieces[] = {"hidden_size", "num_layers", ": ", "\n",   "-",    "[",  "]", "{",      "}",
                                   "1e",          "True",       "\"", "'",    "&a ",  "*a", "#", "\xff",   "? ",
                                   "--",          "swiglu",     "=",  "0x10", "|\n ", ">",  ",", "12_000", "%"};

std::string random_text(std::mt19937& random, int pieces) {
  std::string text;
  for (int i = 0; i < pieces; ++i) text += kPieces[random() % std::size(kPieces)];
  return text;
}

TEST(RandomInput, Yaml) {
  std::mt19937 random(7);
  const Tables tables;
  for (int i = 0; i < 3000; ++i) {
    Input input;
    const std::string text = random_text(random, 1 + static_cast<int>(random() % 20));
    ASSERT_NO_THROW(read_yaml_text(tables, text, "random.yaml", input)) << text;
  }
  Input deep;
  EXPECT_NO_THROW(read_yaml_text(tables, "hidden_size: " + std::string(100000, '['), "deep.yaml", deep));
  EXPECT_FALSE(deep.problems.empty());
}

TEST(RandomInput, CommandLine) {
  std::mt19937 random(8);
  const std::vector<std::string> names = OptionTable().names();
  for (int i = 0; i < 200; ++i) {
    std::vector<std::string> args;
    for (int k = 0; k < 8; ++k)
      args.push_back(random() % 2 == 0 ? names[random() % names.size()] : random_text(random, 2));
    ASSERT_NO_THROW({
      const ParsedRun run = parse_run(args, ParseMode::train);
      EXPECT_FALSE(run.accepted());  // at least the sizes are missing
    });
  }
}

TEST(RandomInput, ExtremeNumbers) {
  for (const std::string value :
       {"0", "-1", "1", "2147483648", "9223372036854775807", "99999999999999999999", "1e308", "nan"}) {
    for (const char* name : {"--num-layers", "--hidden-size", "--num-attention-heads", "--tensor-model-parallel-size",
                             "--pipeline-model-parallel-size", "--world-size", "--global-batch-size", "--vocab-size",
                             "--micro-batch-size", "--seq-length", "--make-vocab-size-divisible-by"}) {
      const std::vector<std::string> args = {"--preset", "tiny", name, value};
      ASSERT_NO_THROW(summarize(parse_run(args, ParseMode::validate))) << name << " " << value;
    }
  }
}

}  // namespace
}  // namespace megatron::config
