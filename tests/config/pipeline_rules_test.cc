// Options of pipeline schedules: what they mean, and which contradict each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "config/parse.h"

namespace megatron::config {
namespace {

/// A run of 16 layers on 4 pipeline ranks with 8 micro-batches.
ParsedRun parse(const std::string& more) {
  std::istringstream stream(
      "--num-layers 16 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --micro-batch-size 1 "
      "--global-batch-size 8 --pipeline-model-parallel-size 4 " +
      more);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return parse_run(list, ParseMode::validate);
}

std::string errors_of(const std::string& more) {
  std::string text;
  for (const std::string& error : parse(more).errors) text += error + "\n";
  return text;
}

void expect_error(const std::string& more, const std::string& text) {
  const std::string errors = errors_of(more);
  EXPECT_NE(errors.find(text), std::string::npos) << more << ": " << errors;
}

void expect_schedule(const std::string& more, spec::PipelineSchedule schedule, int chunks,
                     spec::PlacementKind placement = spec::PlacementKind::linear) {
  const ParsedRun run = parse(more);
  EXPECT_EQ(errors_of(more), "") << more;
  EXPECT_EQ(run.spec.parallel.schedule, schedule) << more;
  EXPECT_EQ(run.spec.parallel.placement(), (spec::StagePlacement{4, chunks, placement})) << more;
  EXPECT_TRUE(run.accepted()) << more;
}

const std::string kStages = "--num-virtual-stages-per-pipeline-rank ";
const std::string kLayers = "--num-layers-per-virtual-pipeline-stage ";
const std::string kGroup = "--microbatch-group-size-per-virtual-pipeline-stage ";

TEST(PipelineRules, SchedulesAndTheirStages) {
  using spec::PipelineSchedule;
  expect_schedule("", PipelineSchedule::one_f_one_b, 1);
  expect_schedule(kStages + "1", PipelineSchedule::one_f_one_b, 1);
  expect_schedule("--pipeline-schedule gpipe", PipelineSchedule::gpipe, 1);
  expect_schedule("--pipeline-schedule zb-h1", PipelineSchedule::zb_h1, 1);
  expect_schedule("--pipeline-schedule zb-h2", PipelineSchedule::zb_h2, 1);
  expect_schedule("--pipeline-schedule zb-auto", PipelineSchedule::zb_auto, 1);
  expect_schedule(kStages + "2", PipelineSchedule::interleaved, 2);
  expect_schedule(kLayers + "1", PipelineSchedule::interleaved, 4);
  expect_schedule("--pipeline-schedule interleaved " + kLayers + "2", PipelineSchedule::interleaved, 2);
  expect_schedule("--pipeline-schedule zb-v", PipelineSchedule::zb_v, 2, spec::PlacementKind::v);
  expect_schedule("--pipeline-schedule zb-v " + kStages + "2", PipelineSchedule::zb_v, 2, spec::PlacementKind::v);
  expect_schedule("--pipeline-schedule zb-auto " + kStages + "2", PipelineSchedule::zb_auto, 2, spec::PlacementKind::v);
}

TEST(PipelineRules, ContradictionsAreErrors) {
  for (const std::string name : {"1f1b", "gpipe", "zb-h1", "zb-h2"})
    expect_error("--pipeline-schedule " + name + " " + kStages + "2", name + " has one stage per rank, not 2");
  expect_error("--pipeline-schedule interleaved", "needs at least 2 virtual stages per rank");
  expect_error("--pipeline-schedule zb-v " + kStages + "4", "zb-v has at most 2 stages per rank, not 4; nearest: 2");
  expect_error("--pipeline-schedule zb-v " + kStages + "1", "zb-v has 2 stages per rank, not 1; nearest: 2");
  expect_error("--pipeline-schedule zb-auto " + kStages + "4", "zb-auto has at most 2 stages per rank, not 4");
  expect_error("--pipeline-schedule zb-v --decoder-first-pipeline-num-layers 4",
               "--decoder-first-pipeline-num-layers 4 (command line), --pipeline-schedule zb-v (command line): V "
               "placement has the first and the last stage on one rank");
  expect_error(kStages + "2 " + kLayers + "2", "exclude each other");
  expect_error(kGroup + "4", "only the interleaved schedule has groups");
  expect_error("--pipeline-times 1,1,1,0", "needs --pipeline-schedule zb-auto");
  expect_error("--pipeline-memory-limit 2", "needs --pipeline-schedule zb-auto or --pipeline-schedule-file");
  expect_error("--pipeline-schedule zb-auto --pipeline-times 1,0,1,0", "must be four numbers F,I,W,comm");
  expect_error("--pipeline-schedule zb-auto --pipeline-memory-limit 0.5",
               "the smallest feasible limit of 4 ranks with 1 stage each is 1");
  expect_error("--pipeline-schedule zb-auto --pipeline-memory-limit 0.25 " + kStages + "2",
               "the smallest feasible limit of 4 ranks with 2 stages each is 0.5");
}

/// The advice is in the terms of the option that asks for the stages, and is none that something else excludes.
TEST(PipelineRules, AdviceCanBeFollowed) {
  const std::string layout = "--pipeline-model-parallel-layout ", v = "--pipeline-schedule zb-v ";
  for (const std::string option : {"--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"})
    expect_error(v + option, option + " (command line), --pipeline-schedule zb-v (command line): V placement");
  const std::string lines = errors_of(v + "--account-for-loss-in-pipeline-split");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  expect_error(v + kLayers + "1", "zb-v has at most 2 stages per rank, not 4; nearest: 2\n");
  expect_error("--num-layers 32 " + v + kLayers + "2", "zb-v has at most 2 stages per rank, not 4; nearest: 4\n");
  expect_error(v + kLayers + "4", "zb-v has 2 stages per rank, not 1; nearest: 2\n");
  expect_error(layout + "Et*4|t*4|t*4|t*4L " + v, "zb-v has 2 stages per rank, not 1; nearest: a layout of 8 stages\n");
  expect_error(layout + "Et*4|t*4|t*4|t*4L --pipeline-schedule interleaved",
               "needs at least 2 virtual stages per rank; nearest: a layout of 8 stages\n");
  expect_error("--pipeline-schedule interleaved " + kLayers + "4",
               "needs at least 2 virtual stages per rank; nearest: 2\n");
  expect_error("--num-layers 12 " + kStages + "2", "nearest: 8 or 16 layers, or 1, 3 virtual stages\n");
  expect_error("--num-layers 4 " + kStages + "2",
               "not divisible by 2 virtual stages; nearest: 8 layers, or 1 virtual stage\n");
  // One line, that of the contradiction.
  EXPECT_EQ(
      errors_of(layout + "Et*4|t*4|t*4|t*4L " + kStages + "2"),
      "--pipeline-model-parallel-layout Et*4|t*4|t*4|t*4L (command line), --num-virtual-stages-per-pipeline-rank 2 "
      "(command line): --pipeline-model-parallel-layout and --num-virtual-stages-per-pipeline-rank exclude each "
      "other\n");
  const ParsedRun few = parse("--num-layers 3");
  EXPECT_FALSE(few.errors.empty());
  for (const std::string& notice : few.notices) EXPECT_EQ(notice.find("split"), std::string::npos) << notice;
}

/// The size that breaks the rule comes from the ramp, not from the batch where it ends.
TEST(PipelineRules, SizesOfAChangingBatchAreBlamedOnTheirOption) {
  expect_error(kStages + "2 --rampup-batch-size 4 2 100",
               "--rampup-batch-size 4 2 100 (command line), --microbatch-group-size-per-virtual-pipeline-stage, "
               "--pipeline-model-parallel-size 4 (command line): global batch 6 (from sample 52 on): 6 micro-batches");
}

TEST(PipelineRules, GroupsAsInMegatron) {
  EXPECT_EQ(errors_of(kStages + "2 " + kGroup + "8"), "");
  expect_error(kStages + "2 " + kGroup + "2", "a group of 2 micro-batches must lie between the pipeline size 4 and");
  expect_error(kStages + "2 " + kGroup + "9", "and the number of micro-batches 8");
  expect_error(kStages + "2 " + kGroup + "6", "8 micro-batches in groups of 6 leave a last group of 2");
  // 4, then 6, then 8 micro-batches: 6 leave a group of 2.
  expect_error(kStages + "2 --rampup-batch-size 4 2 100", "6 micro-batches in groups of 4 leave a last group of 2");
  EXPECT_EQ(errors_of(kStages + "2 --rampup-batch-size 4 4 100"), "");
  expect_error(kStages + "2 --global-batch-size 2", "at least as many micro-batches as pipeline ranks: 2 < 4");
}

TEST(PipelineRules, LayoutsAsInMegatron) {
  using spec::PipelineSchedule;
  const std::string layout = "--pipeline-model-parallel-layout ";
  expect_schedule(layout + "Et*4|t*4|t*4|t*4L", PipelineSchedule::one_f_one_b, 1);
  expect_schedule(layout + "E|(ttt|)*5tL|", PipelineSchedule::interleaved, 2);
  expect_schedule(layout + "E|(ttt|)*5tL| --pipeline-schedule zb-v", PipelineSchedule::zb_v, 2, spec::PlacementKind::v);
  const ParsedRun v = parse(layout + "E|(ttt|)*5t|L --pipeline-schedule zb-v");
  EXPECT_EQ(v.spec.parallel.layers_per_stage, (std::vector<std::int64_t>{0, 3, 3, 3, 3, 3, 1, 0}));
  EXPECT_EQ(v.described.layers_per_stage, (std::vector<std::vector<std::int64_t>>{{0, 0}, {3, 1}, {3, 3}, {3, 3}}));
  expect_error(layout + "Et*8|t*8L", layout + "Et*8|t*8L (command line): pipeline layout: 2 stages do not divide");
  expect_error(layout + "Et*8|L|t*8|", "the loss L must be the last layer");
  expect_error(layout + "Et*8|t*7|L|", "15 decoder layers, the model has 16");
  expect_error(layout + "Et*8|t*7x|tL|", "\"x\" is none of E (embedding), t (layer), L (loss)");
  for (const std::string other : {"--decoder-first-pipeline-num-layers 4", "--decoder-last-pipeline-num-layers 4",
                                  "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"})
    expect_error(layout + "Et*4|t*4|t*4|t*4L " + other, "a layout excludes the options that set or count single");
  for (const std::string& other : {kStages + "2", kLayers + "2"})
    expect_error(layout + "Et*4|t*4|t*4|t*4L " + other, "exclude each other");
  expect_error(layout + "Et*4|t*4|t*4|t*4L --pipeline-schedule zb-v", "zb-v has 2 stages per rank, not 1");
  expect_error(layout + "Et|t*4|t*4|t*4|t|t|t|L --pipeline-schedule zb-h1", "zb-h1 has one stage per rank, not 2");
  const std::string bracket = "brackets stand around what is repeated, are not nested, and end with * and a number";
  for (const char* bad : {"E(t|", "Et)|", "E((t|)*2|)*2L", "(Et*4|t*4|t*4|t*4L)"}) expect_error(layout + bad, bracket);
  expect_error(layout + "Et*|t*8L", "a repeat is a symbol or a bracket, then * and a number, as in t*3");
  expect_error(layout + "Et*200000L", "a repeat must be at most 100000; nearest: 100000");
  expect_error(layout + "Et*16L", "pipeline layout: 1 stage does not divide by pipeline size 4; nearest: 4 stages");
  EXPECT_EQ(errors_of(layout + "Ex|t|t|L").find(", m"), std::string::npos);
  const ParsedRun predicting = parse(layout + "Et*4|t*4|t*4|t*4mL --mtp-num-layers 1");
  EXPECT_TRUE(predicting.errors.empty());
  std::string not_built;
  for (const std::string& line : predicting.not_built) not_built += line + "\n";
  EXPECT_NE(not_built.find("multi-token-prediction layers (m) are not built"), std::string::npos) << not_built;
}

TEST(PipelineRules, SplitsNameTheirCauseAndTheNearestValue) {
  expect_error(kStages + "3",
               "num-virtual-stages-per-pipeline-rank 3 (command line): 16 layers over pipeline size 4 = 4 "
               "per rank, not divisible by 3 virtual stages; nearest: 12 or 24 layers, or 2, 4 virtual stages");
  expect_error(kLayers + "3", "do not divide into pipeline size 4 x 3 layers per virtual stage; nearest: 2, 4");
  expect_error("--num-layers 18 " + kLayers + "2", "nearest: 16, 20 layers");
  expect_error("--num-layers 18 " + kStages + "2",
               "18 layers not divisible by pipeline size 4; nearest: 16 or 24 layers");
  expect_error(
      "--account-for-loss-in-pipeline-split",
      "17 layers (embedding and loss counted as asked) not divisible by pipeline size 4; nearest: 15 or 19 layers");
  expect_error("--decoder-first-pipeline-num-layers 3",
               "--decoder-first-pipeline-num-layers 3 (command line): 13 layers between first and last stage do not "
               "divide over 3 stages; nearest: 15 layers in all, or first 4");
  expect_error("--decoder-first-pipeline-num-layers 4 " + kStages + "3", "nearest: 2, 4");
  expect_error("--pipeline-schedule zb-v --num-layers 20",
               "5 per rank, not divisible by 2 virtual stages; nearest: 16 or 24 layers\n");
}

TEST(PipelineRules, SchedulesFromFiles) {
  const std::string path = (std::filesystem::temp_directory_path() / "megatron_pipeline_rules_test.txt").string();
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  const std::string option = "--pipeline-schedule-file " + path + " --global-batch-size 1 ";
  write("0F0,0B0\n1F0,1B0\n2F0,2I0,2W0\n3F0,3B0\n");
  expect_schedule(option, spec::PipelineSchedule::from_file, 1);
  expect_schedule(option + "--pipeline-memory-limit 0.25", spec::PipelineSchedule::from_file, 1);
  expect_error(option + "--pipeline-memory-limit 0.2", "0F0 makes 1 stashes, more than the 0.8");
  expect_error(option + "--global-batch-size 2",
               "--pipeline-schedule-file " + path + " (command line): 1 micro-batch, a step has 2");
  expect_error(option + "--pipeline-model-parallel-size 2", "4 ranks, the pipeline has 2");
  expect_error(option + "--pipeline-schedule 1f1b", "exclude each other");
  expect_error(option + kStages + "2", "1 virtual stage per rank in linear placement, the run has 2");
  write("0F0,0B0\n1F0,1B0\n2F0,2I0\n3F0,3B0\n");
  expect_error(option, "rank 2: 2W0 is missing");
  write("0F0,7F0,7B0,0B0\n1F0,6F0,6B0,1B0\n2F0,5F0,5B0,2B0\n3F0,4F0,4B0,3B0\n");
  expect_schedule(option, spec::PipelineSchedule::from_file, 2, spec::PlacementKind::v);
  std::filesystem::remove(path);
  expect_error(option, "cannot be read");
}

TEST(PipelineRules, LayersStandWhereTheirStageStands) {
  // Stage 0 holds the embedding as a layer, stage 7 the loss.
  const std::string counted =
      "--num-layers 14 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split ";
  const ParsedRun linear = parse(counted + kStages + "2");
  EXPECT_EQ(linear.spec.parallel.layers_per_stage, (std::vector<std::int64_t>{1, 2, 2, 2, 2, 2, 2, 1}));
}

}  // namespace
}  // namespace megatron::config
