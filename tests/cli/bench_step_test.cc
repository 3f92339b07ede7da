// megatron bench step as a user runs it: its figures, its profile, its trace, what it refuses.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/shell_command.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::CommandResult;
using testing::run_command;
using testing::TemporaryFolder;

/// A preset made small: two ranks, two steps.
CommandResult bench_step(const std::string& more) {
  return run_command(
      std::string("'") + MEGATRON_BINARY +
      "' bench step --quick-peak --preset tiny --seq-length 32 --max-position-embeddings 32 --num-layers 2"
      " --micro-batch-size 1 --threads-per-rank 1 --world-size 2 --tensor-model-parallel-size 2"
      " --steps 2 --warmup 1 " +
      more + " 2>&1");
}

TEST(BenchStep, ProfileTraceAndMemoryAgreeWithThemselves) {
  const TemporaryFolder folder;
  const CommandResult result = bench_step("--profile --json --trace " + (folder / "trace.json"));
  ASSERT_EQ(result.status, 0) << result.output;
  const json line = json::parse(result.output);
  ASSERT_EQ(line.at("profile_step_seconds").size(), 2U);
  EXPECT_GT(line.at("copy_peak_bytes_per_second").get<double>(), 0.0);

  std::ifstream file(folder / "trace.json");
  const json trace = json::parse(file);
  std::vector<double> traced_seconds(2);  // of the three recorded steps
  for (const json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("cat") == "step")
      traced_seconds.at(event.at("pid").get<std::size_t>()) += 1e-6 * event.at("dur").get<double>() / 3;

  for (std::size_t rank = 0; rank < 2; ++rank) {
    double seconds = 0, share = 0;
    std::set<std::string> names;
    for (const json& row : line.at("profile")) {
      if (row.at("rank") != rank) continue;
      seconds += row.at("seconds").get<double>();
      share += row.at("share").get<double>();
      names.insert(row.at("name").get<std::string>());
      if (row.at("name") != "matmul_forward") continue;
      EXPECT_GT(row.at("flops_per_second").get<double>(), 0.0);
      EXPECT_GT(row.at("share_of_limit").get<double>(), 0.0);
    }
    EXPECT_NEAR(share, 1.0, 1e-9);
    EXPECT_NEAR(seconds / traced_seconds[rank], 1.0, 1e-9);
    EXPECT_NEAR(line.at("profile_step_seconds")[rank].get<double>() / traced_seconds[rank], 1.0, 1e-9);
    for (const char* name :
         {"matmul_forward", "matmul_dgrad", "matmul_wgrad", "attention_forward", "attention_backward", "norm_forward",
          "adamw_step", "post all_reduce tp", "other in forward"})
      EXPECT_TRUE(names.count(name)) << name;
  }

  std::int64_t sum = 0;
  for (const json& bytes : line.at("peak_bytes_by_kind")) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(sum, line.at("peak_bytes").get<std::int64_t>());
  EXPECT_EQ(line.at("peak_bytes_by_kind").at("optimizer").get<std::int64_t>(),
            2 * line.at("peak_bytes_by_kind").at("parameters").get<std::int64_t>());
  EXPECT_GT(line.at("peak_rss_bytes").get<std::int64_t>(), 0);
}

TEST(BenchStep, RefusesInOneLine) {
  const std::vector<std::tuple<std::string, int, std::string>> cases = {
      {"--trace /nonexistent/t.json", 1, "--trace /nonexistent/t.json: cannot open: No such file or directory\n"},
      {"--load nowhere", 2, "--load: bench step trains fresh weights"},
      {"--train-iters 5", 2, "--train-iters: bench step trains"},
      {"--train-samples=5", 2, "--train-samples: bench step trains"},
      {"--profile-step-start 1", 2, "--profile-step-start: bench step trains"},
      {"--trace", 2, "--trace: a value is missing\n"}};
  for (const auto& [options, status, text] : cases) {
    const CommandResult result = bench_step(options);
    EXPECT_EQ(result.status, status) << options;
    EXPECT_EQ(result.output.substr(0, text.size()), text);
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
}

TEST(BenchKernels, MultiplyIn16Bits) {
  const auto bench_matmul = [](const std::string& options) {
    return run_command(std::string("'") + MEGATRON_BINARY +
                       "' bench matmul --m 30 --n 40 --k 50 --threads-per-rank 1 --json " + options + " 2>&1");
  };
  const CommandResult result = bench_matmul("--bf16");
  ASSERT_EQ(result.status, 0) << result.output;
  const json line = json::parse(result.output);
  EXPECT_EQ(line.at("dtype"), "bfloat16");
  for (const char* key : {"matmul_peak_flops_per_second", "x_wT_flops_per_second", "dyT_x_accumulate_flops_per_second"})
    EXPECT_GT(line.at(key).get<double>(), 0.0) << key;
  const CommandResult both = bench_matmul("--bf16 --fp16");
  EXPECT_EQ(both.status, 2);
  EXPECT_EQ(both.output, "--bf16 and --fp16: choose one of them\n");
}

TEST(BenchKernels, RefuseWhatCannotBeHeld) {
  for (const char* options :
       {"matmul --m 4294967296 --n 4294967296 --k 4294967296", "matmul --m 1000000 --n 1000000",
        "attention --seq-length 1000000000 --heads 1000000000 --groups 1 --head-size 1000000000 --batch 1000000000"}) {
    const CommandResult result = run_command(std::string("'") + MEGATRON_BINARY + "' bench " + options + " 2>&1");
    EXPECT_EQ(result.status, 1) << options;
    EXPECT_EQ(result.output.rfind("out of memory: the operands have ", 0), 0U) << result.output;
  }
}

TEST(BenchStep, TimesThePassesOfAPipeline) {
  const auto bench = [](const std::string& more) {
    return run_command(std::string("'") + MEGATRON_BINARY +
                       "' bench step --quick-peak --preset tiny --seq-length 32 --max-position-embeddings 32"
                       " --num-layers 2 --micro-batch-size 1 --threads-per-rank 1 --pipeline-model-parallel-size 2"
                       " --num-micro-batches 4 --steps 3 --warmup 1 --json " +
                       more + " 2>&1");
  };
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    const CommandResult result = bench("--pipeline-schedule " + schedule);
    ASSERT_EQ(result.status, 0) << result.output;
    const json figures = json::parse(result.output);
    EXPECT_EQ(figures.at("tokens_per_step"), 4 * 32);
    ASSERT_EQ(figures.at("stage_seconds").size(), 2U);
    for (const json& rank : figures.at("stage_seconds")) {
      EXPECT_GT(rank.at("F").get<double>(), 0.0);
      EXPECT_EQ(rank.at("B").get<double>() > 0.0, schedule == "1f1b");
      EXPECT_EQ(rank.at("I").get<double>() > 0.0, schedule != "1f1b");
      EXPECT_EQ(rank.at("W").get<double>() > 0.0, schedule != "1f1b");
    }
    for (const char* key : {"bubble_rate", "simulated_bubble_rate"})
      EXPECT_TRUE(figures.at(key).get<double>() >= 0.0 && figures.at(key).get<double>() < 1.0) << key;
  }
  const CommandResult both = bench("--global-batch-size 8");
  EXPECT_EQ(both.status, 2);
  EXPECT_NE(both.output.find("--num-micro-batches and --global-batch-size exclude each other"), std::string::npos);
}

}  // namespace
}  // namespace megatron
