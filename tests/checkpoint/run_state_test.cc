#include "checkpoint/run_state.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace megatron::checkpoint {
namespace {

RunState sample() {
  RunState state;
  state.iteration = 12;
  state.consumed_samples = 1LL << 40;
  state.consumed_valid_samples = 3;
  state.trained_tokens = 12345;
  state.skipped_iterations = 1;
  state.num_updates = 11;
  state.scheduler_samples = 88;
  state.schedule.max_lr = 0.1;
  state.schedule.min_lr = 1e-300;
  state.schedule.lr_decay_style = "WSD";
  state.schedule.lr_warmup_samples = 5;
  state.schedule.end_weight_decay = 1.0 / 3.0;
  state.run_json = R"({"model":{"num_layers":2},"z":[1,2.5,"x"]})";
  state.tokenizer_json = R"({"type":"ByteLevel"})";
  return state;
}

TEST(RunState, ComesBackExactly) {
  const std::string text = run_state_to_json(sample());
  EXPECT_EQ(run_state_from_json(text, "state.json"), sample());
  EXPECT_EQ(run_state_to_json(run_state_from_json(text, "state.json")), text);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["iteration"], 12);
  EXPECT_EQ(json["schedule"]["lr_decay_style"], "WSD");
  EXPECT_EQ(json["run"]["model"]["num_layers"], 2);
}

TEST(RunState, EveryTruncationIsRefused) {
  const std::string text = run_state_to_json(sample());
  for (std::size_t n = 0; n + 2 < text.size(); ++n)  // the last two bytes are a brace and a newline
    EXPECT_THROW(run_state_from_json(text.substr(0, n), "state.json"), IoError) << n;
}

TEST(RunState, RefusesDamagedFields) {
  const auto refusal = [](const std::function<void(nlohmann::json&)>& change) -> std::string {
    auto json = nlohmann::json::parse(run_state_to_json(sample()));
    change(json);
    try {
      run_state_from_json(json.dump(), "d/state.json");
    } catch (const IoError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("d/state.json: ", 0), 0U);
      return error.what();
    }
    return "accepted";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal([](auto& j) { j.erase("trained_tokens"); }), "\"trained_tokens\" is missing"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["schedule"].erase("max_lr"); }), "schedule: \"max_lr\" is missing"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["iteration"] = -1; }), "\"iteration\" is -1, not a count"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["iteration"] = 1.5; }), "not a count"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["iteration"] = 1ULL << 63; }), "not a count"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["schedule"]["max_lr"] = "fast"; }), "\"max_lr\" is \"fast\", not a number"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["schedule"]["max_lr"] = nullptr; }), "not a number"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["schedule"]["lr_decay_style"] = 1; }), "not a string"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["run"] = 1; }), "\"run\" is not an object"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["surprise"] = 1; }), "unknown field \"surprise\""));
  EXPECT_TRUE(has(refusal([](auto& j) { j["schedule"]["surprise"] = 1; }), "unknown field \"surprise\""));
  EXPECT_TRUE(has(refusal([](auto& j) { j["version"] = 9; }), "version 9"));
  EXPECT_TRUE(has(refusal([](auto& j) { j["format"] = "?"; }), "format is"));
  EXPECT_TRUE(has(refusal([](auto& j) { j = 3; }), "is not an object"));
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
}

TEST(RunState, RefusesToWriteWhatIsNoObject) {
  RunState state = sample();
  state.run_json = "[1]";
  EXPECT_THROW(run_state_to_json(state), Error);
  state.run_json = "{";
  EXPECT_THROW(run_state_to_json(state), Error);
}

}  // namespace
}  // namespace megatron::checkpoint
