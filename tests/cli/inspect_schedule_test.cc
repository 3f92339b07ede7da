// megatron inspect pipeline and inspect lr, as a user calls them.
#include <gtest/gtest.h>

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

TEST(InspectPipeline, ListsAndChart) {
  const std::string run = std::string("pipeline --pipeline-model-parallel-size 2 --world-size 2") + kModel;
  const Result text = inspect(run);
  ASSERT_EQ(text.status, 0) << text.output;
  EXPECT_NE(text.output.find("stage 1: 1rf0 1F0 1B0 1sb0 1rf1 1F1 1B1 1sb1 1rf2"), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("rank 0 |F0 F1 ......B0    F2 B1    F3 B2    ...B3    |"), std::string::npos)
      << text.output;
  const Result machine = inspect(run + "--json");
  ASSERT_EQ(machine.status, 0) << machine.output;
  const json view = json::parse(machine.output);
  EXPECT_EQ(view["num_microbatches"], 4);
  EXPECT_DOUBLE_EQ(view["bubble"].get<double>(), 0.2);
  EXPECT_EQ(view["stages"][0]["max_live_stashes"], 2);
  EXPECT_EQ(view["stages"][1]["first_layer"], 2);
  EXPECT_EQ(view["stages"][0]["instructions"].size(), 16U);
  const json all_first = json::parse(inspect(run + "--pipeline-schedule gpipe --json").output);
  EXPECT_EQ(all_first["stages"][0]["max_live_stashes"], 4);
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
