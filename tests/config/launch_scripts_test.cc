// Launch scripts of public projects: the verdict, what is refused, and every derived number.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "config/summary.h"
#include "support/reference_data.h"

namespace megatron::config {
namespace {

using nlohmann::json;

bool holds(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

struct Outcome {
  ParsedRun run;
  json numbers;
};

/// `validate`, with the vocabulary of the tokenizer that the script names.
Outcome validate(const json& script, std::vector<std::string> args) {
  const bool counted = holds(args, "NullTokenizer") && holds(args, "--vocab-size");
  if (!script["tokenizer_vocab_size"].is_null() && !counted) {
    args.push_back("--vocab-size");
    args.push_back(std::to_string(script["tokenizer_vocab_size"].get<std::int64_t>()));
  }
  args.push_back("--world-size");
  args.push_back(std::to_string(script["world_size"].get<int>()));
  Outcome out{parse_run(args, ParseMode::validate), {}};
  out.numbers = json::parse(summary_json(out.run, summarize(out.run)));
  return out;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// Each refused option, and each refused value with its option, stands in one line.
void expect_named(const json& script, const std::vector<std::string>& errors) {
  for (const char* list : {"refused_options", "refused_values"}) {
    for (const auto& entry : script[list]) {
      const std::string option = entry["option"];
      // This program has a world of that name itself.
      if (option == "--distributed-backend" && entry["values"][0] == "mpi") continue;
      const bool named = std::any_of(errors.begin(), errors.end(), [&](const std::string& line) {
        bool all = line.find(option) != std::string::npos;
        if (std::string(list) == "refused_values")
          for (const auto& value : entry["values"])
            all = all && line.find(value.get<std::string>()) != std::string::npos;
        return all;
      });
      EXPECT_TRUE(named) << script["name"] << " " << entry.dump();
    }
  }
}

TEST(LaunchScripts, VerdictsAndNumbers) {
  const auto folder = megatron::testing::reference_dir() / "cases/launch_scripts";
  MEGATRON_REQUIRE_REFERENCE(folder);
  int verdicts = 0, numbers = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".json") continue;
    const json script = json::parse(std::ifstream(file.path()));
    const std::string name = script["name"];
    Outcome outcome = validate(script, script["args"]);
    EXPECT_EQ(outcome.run.errors.empty(), script["valid"].get<bool>()) << name << "\n" << joined(outcome.run.errors);
    ++verdicts;
    expect_named(script, outcome.run.errors);
    if (script["why_invalid"].is_array()) {
      for (const auto& why : script["why_invalid"]) {
        if (why["kind"] == "unknown-option" || why["kind"] == "bad-choice") continue;  // looked for above
        EXPECT_NE(joined(outcome.run.errors).find(why["rule"].get<std::string>()), std::string::npos)
            << name << ": " << why["rule"];
      }
    }
    if (script["args_current"].is_array()) {
      outcome = validate(script, script["args_current"]);
      EXPECT_EQ(outcome.run.errors.empty(), script["valid_current"].get<bool>()) << name << "\n"
                                                                                 << joined(outcome.run.errors);
      ++verdicts;
    }
    for (const auto& [key, value] : script["expected"].items()) {
      EXPECT_EQ(outcome.numbers[key], value) << name << " " << key;
      ++numbers;
    }
  }
  EXPECT_GE(verdicts, 79);
  EXPECT_GE(numbers, 1000);
}

/// The same from files that are always there.
TEST(LaunchScripts, Gpt3OfTheScriptOf2023) {
  const json script = {{"tokenizer_vocab_size", 50257}, {"world_size", 1024}};
  const Outcome outcome = validate(script, {"--num-layers",
                                            "96",
                                            "--hidden-size",
                                            "12288",
                                            "--num-attention-heads",
                                            "96",
                                            "--seq-length",
                                            "2048",
                                            "--max-position-embeddings",
                                            "2048",
                                            "--micro-batch-size",
                                            "1",
                                            "--global-batch-size",
                                            "1536",
                                            "--fp16",
                                            "--tensor-model-parallel-size",
                                            "8",
                                            "--pipeline-model-parallel-size",
                                            "16",
                                            "--lr",
                                            "6e-5"});
  EXPECT_TRUE(outcome.run.accepted()) << joined(outcome.run.errors);
  EXPECT_EQ(outcome.numbers["dp"], 8);
  EXPECT_EQ(outcome.numbers["num_microbatches"], 192);
  EXPECT_EQ(outcome.numbers["padded_vocab_size"], 51200);
  EXPECT_EQ(outcome.numbers["parameters_total"], 174615846912);
  EXPECT_EQ(outcome.numbers["parameters_unpadded_vocab"], 174604259328);
  EXPECT_EQ(outcome.numbers["layers_per_stage"].size(), 16u);
}

}  // namespace
}  // namespace megatron::config
