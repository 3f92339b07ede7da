// The program as a user calls it: validate, options, inspect, and mistakes in the command itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/shell_command.h"

namespace {

using nlohmann::json;

using Result = megatron::testing::CommandResult;

Result megatron_command(const std::string& arguments) {
  return megatron::testing::run_command(std::string("'") + MEGATRON_BINARY + "' " + arguments + " 2>&1");
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string config_file() {
  const std::string path = testing::TempDir() + "megatron_cli_test.yaml";
  std::ofstream(path) << "tensor_model_parallel_size: 8\npipeline_model_parallel_size: 4\nnum_layers: 32\n"
                         "hidden_size: 4096\nnum_attention_heads: 32\nffn_hidden_size: 16384\nmicro_batch_size: 4\n"
                         "global_batch_size: 1024\nlr: 1e-4\nseq_len: 2048\nbf16: True\n";
  return path;
}

TEST(Program, HelpVersionAndUnknownCommands) {
  EXPECT_EQ(megatron_command("--help").status, 0);
  EXPECT_TRUE(contains(megatron_command("--help").output, "validate"));
  EXPECT_EQ(megatron_command("--version").output.rfind("megatron.cpp ", 0), 0u);
  EXPECT_TRUE(contains(megatron_command("train --help").output, "--tensor-model-parallel-size"));
  for (const auto& [command, option] : std::map<std::string, std::string>{{"generate", "--num-tokens"},
                                                                          {"verify", "--reference"},
                                                                          {"bench", "--steps"},
                                                                          {"bench step", "--steps"},
                                                                          {"validate", "--json"}}) {
    const Result help = megatron_command(command + " --help");
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_TRUE(contains(help.output, option)) << help.output;
    EXPECT_TRUE(contains(help.output, command == "validate" ? "--hidden-size" : "`megatron options`")) << help.output;
  }
  const Result unknown = megatron_command("validat");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(contains(unknown.output, "nearest: validate"));
}

TEST(Program, OutputThatCannotBeWrittenIsNoSuccess) {
  const Result full = megatron::testing::run_command(std::string("'") + MEGATRON_BINARY + "' options 2>&1 >/dev/full");
  EXPECT_EQ(full.status, 1);
  EXPECT_TRUE(contains(full.output, "standard output cannot be written")) << full.output;
}

TEST(Train, AFileThatCannotBeReadIsTheOnlyFinding) {
  for (const char* source : {"--config /nowhere/run.yaml", "--preset gtp2"}) {
    const Result result = megatron_command(std::string("train ") + source);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
}

TEST(Validate, PrintsEveryDerivedNumber) {
  const Result result = megatron_command("validate --config '" + config_file() + "' --world-size 32");
  EXPECT_EQ(result.status, 0) << result.output;
  for (const char* part : {"micro-batches 256", "padded to 51 200", "8 | 8 | 8 | 8", "6 658 404 352", "main weights",
                           "pipeline rank 3", "valid"})
    EXPECT_TRUE(contains(result.output, part)) << part << "\n" << result.output;
}

TEST(Validate, JsonAndExitStatus) {
  const std::string config = "--config '" + config_file() + "' --json ";
  const Result good = megatron_command("validate --world-size 32 " + config);
  EXPECT_EQ(good.status, 0);
  const json numbers = json::parse(good.output);
  EXPECT_EQ(numbers["dp"], 1);
  EXPECT_EQ(numbers["num_microbatches"], 256);
  EXPECT_EQ(numbers["memory_bytes"].size(), 32u);
  EXPECT_TRUE(numbers["errors"].empty() && numbers["not_built"].empty());
  const Result wrong = megatron_command("validate --world-size 33 " + config);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(json::parse(wrong.output)["errors"].size(), 1u);
  const Result later = megatron_command("validate --world-size 32 --use-torch-fsdp2 " + config);
  EXPECT_EQ(later.status, 2);
  EXPECT_TRUE(json::parse(later.output)["errors"].empty());
  EXPECT_EQ(json::parse(later.output)["not_built"].size(), 1u);
}

/// What `train` refuses at its start.
TEST(Validate, FaultsAndFilesOfTheRunAreLookedAt) {
  const std::string run = "validate --world-size 32 --train-iters 5 --json --config '" + config_file() + "' ";
  const auto errors = [&](const std::string& more) {
    const Result result = megatron_command(run + more);
    EXPECT_EQ(result.status, 2) << more;
    return json::parse(result.output)["errors"];
  };
  for (const auto& [fault, line] : std::map<std::string, std::string>{
           {"rank=32,iteration=3,kind=nan", "rank=32 is outside the world of 32 ranks; nearest: rank=31"},
           {"rank=1,iteration=6,kind=nan", "iteration=6 is beyond the run of 5 iterations; nearest: iteration=5"},
           {"rank=1,iteration=2,kind=delay", "kind=delay needs seconds"},
           {"';'", "names no fault"}}) {
    const json found = errors("--inject-fault " + fault);
    ASSERT_EQ(found.size(), 1U) << found.dump();
    EXPECT_TRUE(contains(found[0].get<std::string>(), line)) << found.dump();
  }
  EXPECT_EQ(megatron_command(run + "--inject-fault rank=31,iteration=5,kind=nan").status, 0);
  for (const std::string option : {"--pipeline-schedule-out", "--trace", "--log-json"}) {
    const json found = errors("--profile-step-start 0 " + option + " /nowhere/at/all");
    ASSERT_EQ(found.size(), 1U) << found.dump();
    EXPECT_TRUE(contains(found[0].get<std::string>(), option + " /nowhere/at/all: cannot open")) << found.dump();
  }
}

TEST(Options, ListAndMistake) {
  const Result result = megatron_command("options");
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.output, "--hidden-size"));
  EXPECT_TRUE(contains(result.output, "Different from Megatron-LM on purpose"));
  EXPECT_EQ(megatron_command("options --mardown").status, 2);
}

TEST(Inspect, RanksOfFourThousand) {
  const Result result = megatron_command("inspect ranks --world-size 4096 --global-batch-size 4096 --json --config '" +
                                         config_file() + "'");
  ASSERT_EQ(result.status, 0) << result.output.substr(0, 500);
  const json ranks = json::parse(result.output);
  EXPECT_EQ(ranks["groups"]["dp"].size(), 32u);
  EXPECT_EQ(ranks["groups"]["dp"][0][1], 8);
  EXPECT_EQ(ranks["groups"]["pp"][0], json({0, 1024, 2048, 3072}));
  EXPECT_EQ(ranks["ranks"].size(), 4096u);
}

TEST(Inspect, RanksNeedOnlyTheLayout) {
  const Result result = megatron_command("inspect ranks --world-size 8 --tensor-model-parallel-size 2 --json");
  ASSERT_EQ(result.status, 0) << result.output;
  const json ranks = json::parse(result.output);
  EXPECT_EQ(ranks["sizes"]["dp"], 4);
  EXPECT_EQ(ranks["groups"]["dp"][1], json({1, 3, 5, 7}));
  EXPECT_EQ(megatron_command("inspect ranks stray --world-size 8").status, 2);
}

TEST(Inspect, ModelTable) {
  const std::string run =
      "inspect model --preset tiny --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 ";
  const Result text = megatron_command(run);
  EXPECT_EQ(text.status, 0) << text.output;
  EXPECT_TRUE(contains(text.output, "decoder.layers.3.mlp.linear_fc2.weight"));
  const json table = json::parse(megatron_command(run + "--json").output);
  EXPECT_EQ(table["parameters"][0]["name"], "embedding.word_embeddings.weight");
  EXPECT_EQ(table["parameters"][0]["local_shape"], json({4096, 256}));
  std::int64_t sum = 0;
  for (const auto& row : table["parameters"]) {
    std::int64_t numel = 1;
    for (const auto& size : row["shape"]) numel *= size.get<std::int64_t>();
    sum += numel;
  }
  EXPECT_EQ(table["parameters_total"], sum);
}

TEST(Inspect, MistakesAreRefused) {
  EXPECT_EQ(megatron_command("inspect").status, 2);
  EXPECT_TRUE(contains(megatron_command("inspect rank").output, "nearest: ranks"));
  const Result wrong = megatron_command("inspect ranks --preset tiny --world-size 3 --tensor-model-parallel-size 2");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.output, "world size 3 not divisible"));
}

}  // namespace
