// megatron inspect pipeline and inspect lr, as a user calls them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/shell_command.h"

namespace {

using nlohmann::json;

using Result = megatron::testing::CommandResult;

Result inspect(const std::string& arguments) {
  return megatron::testing::run_command(std::string("'") + MEGATRON_BINARY + "' inspect " + arguments + " 2>&1");
}

const char* const kModel =
    " --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16"
    " --micro-batch-size 2 --global-batch-size 8 ";

TEST(InspectPipeline, OfARun) {
  const std::string run = std::string("pipeline --pipeline-model-parallel-size 2 --world-size 2") + kModel;
  const Result text = inspect(run + "--with-communication");
  ASSERT_EQ(text.status, 0) << text.output;
  EXPECT_NE(text.output.find("rank 1: 1rf0 1F0 1B0 1sb0 1rf1 1F1 1B1 1sb1 1rf2"), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("rank 0 |F0 F1 ......B0    F2 B1    F3 B2    ...B3    |"), std::string::npos)
      << text.output;
  const Result machine = inspect(run + "--json");
  ASSERT_EQ(machine.status, 0) << machine.output;
  const json view = json::parse(machine.output);
  EXPECT_EQ(view["schedule"], "1f1b");
  EXPECT_EQ(view["micro_batches"], 4);
  EXPECT_DOUBLE_EQ(view["bubble_rate"].get<double>(), 0.2);
  EXPECT_EQ(view["peak_chunk_stashes"], (json{2, 1}));
  EXPECT_EQ(view["layers"][1]["first_layer"], 2);
  EXPECT_EQ(view["instructions"][0].size(), 8U);
  const json all_first = json::parse(inspect(run + "--pipeline-schedule gpipe --json").output);
  EXPECT_EQ(all_first["peak_chunk_stashes"][0], 4);
}

TEST(InspectPipeline, OfASchedule) {
  const Result machine = inspect("pipeline --schedule zb-h1 --stages 4 --micro-batches 8 --times 2,2,1,0 --json");
  ASSERT_EQ(machine.status, 0) << machine.output;
  const json view = json::parse(machine.output);
  EXPECT_EQ(view["schedule"], "zb-h1");
  EXPECT_EQ(view["stages"], 4);
  EXPECT_EQ(view["micro_batches"], 8);
  EXPECT_EQ(view["chunks"], 1);
  EXPECT_DOUBLE_EQ(view["longest_stage_span"].get<double>(), 8 * 5 + 3 * 3);  // (p - 1)(F + I - W) idle
  EXPECT_DOUBLE_EQ(view["bubble_rate"].get<double>(), 9.0 / 49.0);
  EXPECT_EQ(view["peak_chunk_stashes"], (json{4, 4, 4, 4}));
  EXPECT_EQ(view["peak_pending_w"], (json{1, 2, 3, 4}));
  EXPECT_EQ(view["peak_memory"], (json{4.0, 4.0, 4.0, 4.0}));
  EXPECT_EQ(view["instructions"][3][0], "3F0");

  const json v = json::parse(inspect("pipeline --schedule zb-v --stages 2 --micro-batches 4 --json").output);
  EXPECT_EQ(v["chunks"], 2);
  EXPECT_DOUBLE_EQ(v["makespan"].get<double>(), 12.5);
  EXPECT_DOUBLE_EQ(v["bubble_rate"].get<double>(), 0.0);
  EXPECT_EQ(v["peak_memory"], (json{2.0, 2.0}));
  const json interleaved = json::parse(
      inspect(
          "pipeline --schedule interleaved --stages 2 --virtual-stages 2 --micro-batches 4 --with-communication --json")
          .output);
  EXPECT_EQ(interleaved["instructions"][1][0], "1rf0");
  EXPECT_EQ(interleaved["peak_chunk_stashes"], (json{5, 3}));
}

TEST(InspectPipeline, SearchesWithinAMemoryLimit) {
  const std::string run = "pipeline --schedule zb-auto --stages 8 --micro-batches 24 --json ";
  const json v = json::parse(inspect(run + "--layout v --pipeline-memory-limit 0.625").output);
  EXPECT_LE(v["bubble_rate"].get<double>(), 0.6 * 7.0 / 31.0);
  for (const json& memory : v["peak_memory"]) EXPECT_LE(memory.get<double>(), 5.0);
  const json kept = json::parse(inspect(run + "--pipeline-memory-limit 2 --stash-kept-after-input-grad 0.5").output);
  for (const json& memory : kept["peak_memory"]) EXPECT_LE(memory.get<double>(), 16.0);
  const Result refused = inspect(run + "--layout v --pipeline-memory-limit 0.3");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find("smallest feasible limit of 8 ranks is 0.5"), std::string::npos) << refused.output;
}

/// Files of times and schedules belong to the command line: whatever is wrong with them has exit status 2.
TEST(InspectPipeline, BadFilesAreMistakesOfTheCommandLine) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "megatron_inspect_bad_files_test";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  };
  const std::string two_stages = "pipeline --schedule 1f1b --stages 2 --micro-batches 4 --times-file ";
  const std::pair<std::string, const char*> refused[] = {
      {two_stages + (folder / "missing").string(), "missing: cannot be read"},
      {two_stages + folder.string(), ": cannot be read"},
      {two_stages + write("words", "a,b\n"), "words, line 1: must be F,I,W"},
      {two_stages + write("three", "1,1,1\n1,1,1\n1,1,1\n"), "3 lines of times; 1 or one per rank (2)"},
      {"pipeline --pipeline-schedule-file " + (folder / "missing").string(), "missing: cannot be read"},
      {"pipeline --pipeline-schedule-file " + (folder / "words").string(), "words: line 1: 'a' is not an instruction"}};
  for (const auto& [words, text] : refused) {
    const Result result = inspect(words);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_NE(result.output.find(text), std::string::npos) << result.output;
  }
  std::filesystem::remove_all(folder);
}

TEST(InspectPipeline, ProgramsAsFiles) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "megatron_inspect_pipeline_test";
  std::filesystem::create_directories(folder);
  const std::string program = (folder / "program.txt").string(), picture = (folder / "chart.svg").string();
  const std::string out = " --pipeline-schedule-out " + program + " --svg " + picture;
  const Result written = inspect("pipeline --schedule zb-h2 --stages 3 --micro-batches 6" + out);
  ASSERT_EQ(written.status, 0) << written.output;
  std::ifstream svg(picture);
  std::string first;
  std::getline(svg, first);
  EXPECT_EQ(first.rfind("<svg xmlns=", 0), 0U) << first;
  const json view = json::parse(inspect("pipeline --pipeline-schedule-file " + program + " --json").output);
  const json made = json::parse(inspect("pipeline --schedule zb-h2 --stages 3 --micro-batches 6 --json").output);
  EXPECT_EQ(view["schedule"], "file");
  EXPECT_EQ(view["instructions"], made["instructions"]);
  EXPECT_EQ(view["peak_chunk_stashes"], made["peak_chunk_stashes"]);
  const Result small = inspect("pipeline --pipeline-memory-limit 1 --pipeline-schedule-file " + program);
  EXPECT_EQ(small.status, 2);
  EXPECT_NE(small.output.find("rank 0: 0F3 makes 4 stashes, more than the 3"), std::string::npos) << small.output;
  std::ofstream(program) << "0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1\n";
  const Result wrong = inspect("pipeline --pipeline-schedule-file " + program);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.output.find("0B0 comes after that of micro-batch 1"), std::string::npos) << wrong.output;
  std::ofstream(program) << "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n";
  const Result circle = inspect("pipeline --pipeline-schedule-file " + program);
  EXPECT_EQ(circle.status, 2);
  EXPECT_NE(circle.output.find("deadlock: 0rb0 (before 0B0)"), std::string::npos) << circle.output;
  std::filesystem::remove_all(folder);
}

TEST(InspectPipeline, TimesOfRanksFromAFile) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "megatron_inspect_times_test.txt";
  std::ofstream(path) << "# F,I,W,comm\n1,1,1,0\n3,3,3,0.5\n";
  const std::string run = "pipeline --stages 2 --micro-batches 1 --times-file " + path.string() + " --json";
  const json view = json::parse(inspect(run).output);
  EXPECT_DOUBLE_EQ(view["makespan"].get<double>(), 1 + 0.5 + 3 + 6 + 0.5 + 2);
  std::ofstream(path) << "1,1\n";
  const Result wrong = inspect(run);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.output.find("line 1: must be F,I,W or F,I,W,comm"), std::string::npos) << wrong.output;
  std::filesystem::remove(path);
}

TEST(InspectPipeline, RefusalsOfSchedules) {
  const auto expect = [](const std::string& arguments, const std::string& text) {
    const Result result = inspect("pipeline " + arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_NE(result.output.find(text), std::string::npos) << arguments << ": " << result.output;
  };
  expect("--schedule zb-h3 --stages 2 --micro-batches 2", "--schedule zb-h3: known are gpipe, 1f1b");
  expect("--schedule 1f1b --stages 2", "--micro-batches is required");
  expect("--schedule 1f1b --stages 0 --micro-batches 2", "--stages 0: must be a whole number from 1");
  expect("--schedule 1f1b --stages 2 --micro-batches 2 --virtual-stages 2", "--virtual-stages 2: 1f1b has 1 per rank");
  expect("--schedule zb-v --stages 2 --micro-batches 2 --layout linear", "zb-v has V placement");
  expect("--schedule interleaved --stages 4 --micro-batches 6", "leave a last group of 2");
  expect("--schedule 1f1b --stages 2 --micro-batches 2 --times 1,1,1", "must be F,I,W,comm");
  expect("--schedule 1f1b --stages 2 --micro-batches 2 --hidden-size 4", "--hidden-size: not an option of a schedule");
  expect("--schedule gpipe --stages 4 --micro-batches 8 --pipeline-memory-limit 1", "0F4 makes 5 stashes");
  expect("--schedule 1f1b --stages 1000 --micro-batches 1000000", "too many to list");
}

TEST(InspectPipeline, LargePipelinesStayShort) {
  for (const char* const name : {"1f1b", "zb-v", "zb-auto", "interleaved"}) {
    const Result text = inspect(std::string("pipeline --stages 300 --micro-batches 300 --schedule ") + name);
    EXPECT_EQ(text.status, 0) << name;
    EXPECT_NE(text.output.find("236 more ranks"), std::string::npos) << name;
  }
}

TEST(InspectPipeline, RefusesAListNobodyCouldRead) {
  const Result huge = inspect(std::string("pipeline --world-size 1") + kModel + " --global-batch-size 1000000000");
  EXPECT_EQ(huge.status, 2);
  EXPECT_NE(huge.output.find("too many to list"), std::string::npos) << huge.output;
}

TEST(InspectLr, OneRowPerUpdate) {
  const std::string run = std::string("lr --train-iters 10 --lr 1e-3 --lr-warmup-iters 2 --lr-decay-style cosine") +
                          " --min-lr 1e-5 --weight-decay 0.1 --world-size 1" + kModel;
  const Result machine = inspect(run + "--json");
  ASSERT_EQ(machine.status, 0) << machine.output;
  const json view = json::parse(machine.output);
  ASSERT_EQ(view["steps"].size(), 10U);
  EXPECT_EQ(view["steps"][0]["lr"], 0.0);  // the first update uses the start of the warm-up
  EXPECT_EQ(view["steps"][1]["lr"], 0.0005);
  EXPECT_EQ(view["steps"][2]["lr"], 0.001);
  EXPECT_EQ(view["steps"][6]["consumed_samples"], 48);
  EXPECT_EQ(view["steps"][6]["lr"], 0.000505);  // half-way between both rates
  EXPECT_EQ(view["steps"][9]["weight_decay"], 0.1);
  EXPECT_EQ(inspect(run).status, 0);
}

TEST(InspectLr, NamesWhatIsMissing) {
  const Result no_rate = inspect(std::string("lr --train-iters 10 --world-size 1") + kModel);
  EXPECT_EQ(no_rate.status, 2);
  EXPECT_NE(no_rate.output.find("--lr"), std::string::npos) << no_rate.output;
  const Result no_length = inspect(std::string("lr --lr 1e-3 --world-size 1") + kModel);
  EXPECT_EQ(no_length.status, 2);
  EXPECT_NE(no_length.output.find("--train-iters"), std::string::npos) << no_length.output;
}

}  // namespace
