#include "metrics/json_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"

namespace megatron::metrics {
namespace {

using Json = nlohmann::json;

StepRecord step(std::int64_t iteration) {
  StepRecord record;
  record.iteration = iteration;
  record.consumed_samples = 8 * iteration;
  record.trained_tokens = 500;
  record.loss = 1.0 / 3.0;
  record.grad_norm = 0.1;
  record.lr = 1e-4;
  record.step_seconds = 0.25;
  return record;
}

std::vector<Json> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line, nullptr, false));
  return lines;
}

class JsonLogTest : public ::testing::Test {
 protected:
  JsonLogTest()
      : path_((std::filesystem::temp_directory_path() / ("log-" + std::to_string(::getpid()) + ".json")).string()) {
    std::filesystem::remove(path_);
  }
  ~JsonLogTest() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST(ToJson, KeysAndSeventeenDigits) {
  const std::string text = to_json(step(3));
  EXPECT_NE(text.find("\"loss\": 0.33333333333333331"), std::string::npos) << text;
  const Json json = Json::parse(text);
  for (const char* key : {"iteration", "consumed_samples", "trained_tokens", "loss", "grad_norm", "lr",
                          "tokens_per_second", "step_seconds", "forward_seconds", "backward_seconds", "skipped", "nan"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["loss"].get<double>(), 1.0 / 3.0);
  EXPECT_EQ(json["lr"].get<double>(), 1e-4);
  EXPECT_EQ(json["tokens_per_second"].get<double>(), 2000.0);
  EXPECT_EQ(json["skipped"], false);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_FALSE(json.contains("redone"));
  StepRecord redone = step(3);
  redone.redone = true;
  EXPECT_EQ(Json::parse(to_json(redone))["redone"], true);
}

TEST(ToJson, WhatIsNotANumberIsNull) {
  StepRecord record = step(1);
  record.loss = std::nan("");
  record.grad_norm = INFINITY;
  record.nan = true;
  const Json json = Json::parse(to_json(record));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_EQ(json["nan"], true);
  StepRecord masked = step(1);
  masked.trained_tokens = 0;
  EXPECT_TRUE(Json::parse(to_json(masked))["loss"].is_null());
}

TEST(ToJson, Evaluation) {
  const Json json = Json::parse(to_json(EvalRecord{20, 1.5, 4096, 0.5}));
  EXPECT_EQ(json["iteration"], 20);
  EXPECT_EQ(json["validation_loss"], 1.5);
  EXPECT_EQ(json["validation_tokens"], 4096);
}

TEST_F(JsonLogTest, AppendsAndFlushesEveryLine) {
  {
    JsonLog log(path_);
    log.write(step(1));
    ASSERT_EQ(lines_of(path_).size(), 1U) << "must be in the file before the log is closed";
    log.write(EvalRecord{1, 2.0, 10, 0.0});
  }
  JsonLog resumed(path_);
  resumed.write(step(2));
  const std::vector<Json> lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["iteration"], 1);
  EXPECT_EQ(lines[1]["validation_loss"], 2.0);
  EXPECT_EQ(lines[2]["iteration"], 2);
}

TEST_F(JsonLogTest, EndsAnUnfinishedLineFirst) {
  std::ofstream(path_) << "{\"iteration\": 1, \"lo";
  JsonLog log(path_);
  log.write(step(2));
  const std::vector<Json> lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].is_discarded());
  EXPECT_EQ(lines[1]["iteration"], 2);
}

TEST_F(JsonLogTest, NamesAPathThatCannotBeOpened) {
  try {
    JsonLog log("/no/such/folder/log.json");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/folder/log.json"), std::string::npos);
  }
}

TEST(JsonLog, SummaryIsOneObjectWithinALine) {
  RunFigures figures;
  figures.peak_bytes = {{"parameters", 12}, {"packed", 0}};
  figures.peak_rss_bytes = std::int64_t{1} << 40;
  figures.communication_bytes_per_step["tp"]["all_reduce"] = 7;
  figures.communication_bytes_per_step["tp"]["all_gather"] = 8;
  figures.communication_bytes_per_step["pp"]["send"] = 9;
  figures.peak_chunk_stashes = 3;
  figures.recomputed_flops = 4;
  figures.model_flops = 5;
  const std::string text = to_json(figures);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(Json::parse(text), Json::parse(R"({"summary": {
    "peak_bytes": {"parameters": 12, "packed": 0}, "peak_rss_bytes": 1099511627776,
    "communication_bytes_per_step": {"tp": {"all_reduce": 7, "all_gather": 8}, "pp": {"send": 9}},
    "peak_chunk_stashes": 3, "recomputed_flops": 4, "model_flops": 5}})"));
}

}  // namespace
}  // namespace megatron::metrics
