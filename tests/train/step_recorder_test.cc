// Recorded steps: the file of --trace as a reader sees it, the profile against the file, and that nothing else changes.
#include "train/step_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/small_run.h"
#include "support/temporary_folder.h"

namespace megatron::train {
namespace {

using megatron::testing::complete;
using megatron::testing::Layout;
using megatron::testing::make_sequences;
using megatron::testing::small_run;
using megatron::testing::SmallOptions;
using megatron::testing::SmallResult;
using megatron::testing::TemporaryFolder;
using megatron::testing::train_small;
using nlohmann::json;

struct Span {
  std::string name, category, instruction;
  std::int64_t begin = 0, end = 0;  // nanoseconds
  int parent = -1;
  std::int64_t inner = 0;
  std::int64_t own() const { return end - begin - inner; }
};

std::int64_t nanoseconds(const json& microseconds) { return std::llround(1000.0 * microseconds.get<double>()); }

/// The spans of each process in the file, each with the one around it. Fails where two overlap without one being in the
/// other.
std::map<int, std::vector<Span>> read_trace(const std::string& path) {
  std::ifstream file(path);
  const json trace = json::parse(file);
  std::map<int, std::vector<Span>> ranks;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_EQ(event.at("tid"), 0);
    Span span{event.at("name"), event.at("cat"), event.at("args").value("instruction", "")};
    span.begin = nanoseconds(event.at("ts"));
    span.end = span.begin + nanoseconds(event.at("dur"));
    ranks[event.at("pid").get<int>()].push_back(span);
  }
  for (auto& [rank, spans] : ranks) {
    std::vector<int> open;
    for (int i = 0; i < static_cast<int>(spans.size()); ++i) {
      Span& span = spans[static_cast<std::size_t>(i)];
      while (!open.empty() && spans[static_cast<std::size_t>(open.back())].end <= span.begin) open.pop_back();
      if (!open.empty()) {
        Span& around = spans[static_cast<std::size_t>(open.back())];
        EXPECT_LE(around.begin, span.begin) << rank << " " << span.name;
        EXPECT_LE(span.end, around.end) << rank << " " << span.name << " in " << around.name;
        span.parent = open.back();
        around.inner += span.end - span.begin;
      }
      open.push_back(i);
    }
  }
  return ranks;
}

SmallOptions sequences() {
  SmallOptions options;
  options.train = make_sequences(512, 16, 61);
  return options;
}

spec::RunSpec recorded_run(const std::string& path, const Layout& layout) {
  spec::RunSpec run = complete(small_run(false), layout);
  run.batch.train_iters = 4;
  run.log.profile = true;
  run.log.trace = path;
  run.log.profile_step_start = 1;
  run.log.profile_step_end = 3;
  return run;
}

std::int64_t count(const std::vector<Span>& spans, const std::string& name) {
  return std::count_if(spans.begin(), spans.end(), [&](const Span& span) { return span.name == name; });
}

TEST(StepRecorder, EveryRankHasNestedSpansOfItsSteps) {
  const TemporaryFolder folder;
  const Layout layout{2, 2, 1, true, 2};  // 4 micro-batches
  train_small(recorded_run(folder / "trace.json", layout), sequences());
  const auto ranks = read_trace(folder / "trace.json");
  ASSERT_EQ(ranks.size(), 4U);
  for (const auto& [rank, spans] : ranks) {
    SCOPED_TRACE(rank);
    const bool first_stage = rank < 2;
    EXPECT_EQ(count(spans, "step 2"), 1);
    EXPECT_EQ(count(spans, "step 3"), 1);
    for (const char* name : {"forward", "backward", first_stage ? "send forward" : "receive forward",
                             first_stage ? "receive backward" : "send backward"})
      EXPECT_EQ(count(spans, name), 2 * 4) << name;
    for (const char* name : {"data", "start gradients", "complete gradients", "summary", "optimizer"})
      EXPECT_EQ(count(spans, name), 2) << name;
    EXPECT_GT(count(spans, "matmul_forward"), 0);
    EXPECT_GT(count(spans, "adamw_step"), 0);
    EXPECT_GT(count(spans, "post reduce_scatter tp"), 0);
    EXPECT_EQ(count(spans, "post receive pp"), 2 * 4);
    EXPECT_LE(count(spans, "wait receive pp"), 2 * 4);  // what has arrived needs no wait
    for (const Span& span : spans) {
      if (span.category == "step") {
        EXPECT_EQ(span.parent, -1);
        EXPECT_GE(span.begin, 0);
        continue;
      }
      ASSERT_GE(span.parent, 0) << span.name;
      const Span& around = spans[static_cast<std::size_t>(span.parent)];
      if (span.category == "phase") {
        EXPECT_EQ(around.category, "step") << span.name;
      }
      if (span.name == "attention_backward") {
        EXPECT_EQ(around.name, "backward");
      }
    }
  }
}

// All ranks are on one time axis: nothing is received before its sender began to send it.
TEST(StepRecorder, RanksShareOneClock) {
  const TemporaryFolder folder;
  train_small(recorded_run(folder / "trace.json", {1, 2, 1, false, 2}), sequences());
  auto ranks = read_trace(folder / "trace.json");
  const auto times = [&](int rank, const std::string& name) {
    std::vector<Span> found;
    for (const Span& span : ranks[rank])
      if (span.name == name) found.push_back(span);
    return found;
  };
  const auto sends = times(0, "send forward"), receives = times(1, "receive forward");
  ASSERT_EQ(sends.size(), 8U);
  ASSERT_EQ(receives.size(), 8U);
  for (std::size_t i = 0; i < sends.size(); ++i) {
    EXPECT_EQ(sends[i].instruction.back(), receives[i].instruction.back());  // the micro-batch
    EXPECT_LT(sends[i].begin, receives[i].end);
  }
}

TEST(StepRecorder, ProfileIsTheStepCutIntoParts) {
  const TemporaryFolder folder;
  const SmallResult result = train_small(recorded_run(folder / "trace.json", {2, 2, 1, false, 1}), sequences());
  auto trace = read_trace(folder / "trace.json");
  ASSERT_EQ(result.profiles.size(), 1U);
  const StepProfile& profile = result.profiles[0];
  EXPECT_EQ(profile.first_iteration, 2);
  EXPECT_EQ(profile.num_steps, 2);
  ASSERT_EQ(profile.ranks.size(), 4U);
  for (int rank = 0; rank < 4; ++rank) {
    std::int64_t steps = 0;
    std::map<std::string, std::int64_t> own, calls;
    for (const Span& span : trace[rank]) {
      if (span.category == "step") steps += span.end - span.begin;
      const std::string name = span.category == "step"    ? "other"
                               : span.category == "phase" ? "other in " + span.name
                                                          : span.name;
      own[name] += span.own();
      ++calls[name];
    }
    const RankProfile& rows = profile.ranks[static_cast<std::size_t>(rank)];
    std::int64_t sum = 0;
    for (const ProfileRow& row : rows.rows) {
      EXPECT_EQ(row.own_ns, own.at(row.title())) << row.title();
      EXPECT_EQ(row.calls, calls.at(row.title())) << row.title();
      sum += row.own_ns;
    }
    EXPECT_EQ(rows.rows.size(), own.size());
    EXPECT_EQ(sum, steps);
    EXPECT_EQ(rows.step_ns, steps);
  }
}

TEST(StepRecorder, RecordingChangesNoBits) {
  const TemporaryFolder folder;
  for (const Layout& layout : {Layout{2, 2, 1, true, 1}, Layout{1, 1, 2, false, 2}}) {
    spec::RunSpec run = recorded_run(folder / "trace.json", layout);
    const SmallResult recorded = train_small(run, sequences());
    run.log.profile = false;
    run.log.trace.reset();
    const SmallResult plain = train_small(run, sequences());
    ASSERT_EQ(recorded.steps.size(), plain.steps.size());
    for (std::size_t i = 0; i < plain.steps.size(); ++i) {
      EXPECT_EQ(recorded.steps[i].loss, plain.steps[i].loss);
      EXPECT_EQ(recorded.steps[i].grad_norm, plain.steps[i].grad_norm);
    }
    EXPECT_EQ(recorded.weights, plain.weights);
    EXPECT_TRUE(plain.profiles.empty());
  }
}

TEST(StepRecorder, AFileThatCannotBeWrittenEndsTheRunBeforeItsFirstStep) {
  spec::RunSpec run = recorded_run("/nonexistent/trace.json", {1, 1, 2, false, 1});
  std::atomic<int> steps = 0;
  SmallOptions options = sequences();
  options.hooks.after_step = [&](RankParts&, const StepReport&) { ++steps; };
  try {
    train_small(run, options);
    FAIL() << "was accepted";
  } catch (const IoError& error) {
    EXPECT_EQ(std::string(error.what()), "--trace /nonexistent/trace.json: cannot open: No such file or directory");
  }
  EXPECT_EQ(steps, 0);
}

TEST(StepRecorder, ARunThatRecordsNothingLeavesNoFile) {
  const TemporaryFolder folder;
  spec::RunSpec run = recorded_run(folder / "trace.json", {1, 1, 2, false, 1});
  SmallOptions options = sequences();
  options.hooks.after_step = [&](RankParts&, const StepReport&) { throw Error("stopped"); };
  EXPECT_THROW(train_small(run, options), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "trace.json"));
  // What stood there before stays.
  std::ofstream(folder / "trace.json") << "kept";
  EXPECT_THROW(train_small(run, options), Error);
  std::string text;
  std::ifstream(folder / "trace.json") >> text;
  EXPECT_EQ(text, "kept");
}

TEST(StepRecorder, AFullDiskIsToldAsTheWritingOfTheRecording) {
  spec::RunSpec run = recorded_run("/dev/full", {1, 1, 2, false, 1});
  try {
    train_small(run, sequences());
    FAIL() << "was accepted";
  } catch (const IoError& error) {
    EXPECT_EQ(std::string(error.what()), "--trace /dev/full: cannot write: No space left on device");
  }
}

TEST(StepRecorder, ARunThatEndsEarlyTellsWhatItHas) {
  const TemporaryFolder folder;
  spec::RunSpec run = recorded_run(folder / "trace.json", {1, 2, 1, false, 2});
  run.batch.exit_interval = 2;
  const SmallResult cut = train_small(run, sequences());
  ASSERT_EQ(cut.profiles.size(), 1U);
  EXPECT_EQ(cut.profiles[0].num_steps, 1);
  EXPECT_EQ(count(read_trace(folder / "trace.json")[1], "step 2"), 1);

  run.batch.exit_interval = 1;
  const SmallResult nothing = train_small(run, sequences());
  EXPECT_TRUE(nothing.profiles.empty());
  EXPECT_EQ(nothing.lines.back().substr(0, 20), "no step was recorded");
}

ProfileRow row(SpanKind kind, const char* name, std::int64_t own_ns, SpanWork work = {}) {
  return {kind, name, kind == SpanKind::wait ? "tp" : "", 1, own_ns, work};
}

TEST(StepProfile, LimitIsTheLongerOfProductsAndCopy) {
  const MachineLimits limits{100e9, 10e9};
  const ProfileRow large = row(SpanKind::kernel, "matmul", 20'000, {1'000'000, 1'000});
  EXPECT_DOUBLE_EQ(share_of_limit(large, limits), 0.5);  // 10 µs of products, 0.1 µs of copying
  EXPECT_TRUE(bound_by_matmul(large, limits));
  const ProfileRow thin = row(SpanKind::kernel, "matmul", 20'000, {1'000'000, 150'000});
  EXPECT_DOUBLE_EQ(share_of_limit(thin, limits), 0.75);
  EXPECT_FALSE(bound_by_matmul(thin, limits));
  EXPECT_EQ(share_of_limit(large, {}), 0.0);
  EXPECT_EQ(share_of_limit(row(SpanKind::wait, "all_reduce", 5), limits), 0.0);
}

TEST(StepProfile, TableIsTheMeanOfRanksAndSteps) {
  StepProfile profile;
  profile.first_iteration = 5;
  profile.num_steps = 2;
  profile.limits = {100e9, 10e9};
  for (const std::int64_t wait : {2'000'000, 4'000'000}) {
    RankProfile rank;
    rank.rows = {row(SpanKind::step, "step", 1'000'000), row(SpanKind::phase, "forward", 500'000),
                 row(SpanKind::wait, "all_reduce", wait),
                 row(SpanKind::kernel, "matmul_forward", 6'500'000 - wait, {200'000'000, 1'000})};
    rank.step_ns = 8'000'000;
    profile.ranks.push_back(rank);
  }
  const std::string table = profile_table(profile);
  EXPECT_NE(table.find("2 steps from iteration 5, mean of 2 ranks"), std::string::npos) << table;
  EXPECT_NE(
      table.find("43.8 %     1.750      0.5  matmul_forward                       57.1 GFLOP/s    57 % of products"),
      std::string::npos)
      << table;
  EXPECT_NE(table.find("37.5 %     1.500      0.5  wait all_reduce tp\n"), std::string::npos) << table;
  EXPECT_NE(table.find("6.2 %     0.250      0.5  other in forward\n"), std::string::npos) << table;
  EXPECT_NE(table.find("100.0 %     4.000           step\n"), std::string::npos) << table;
  EXPECT_NE(table.find("rank 1: 4.00 ms = kernels 31.2 % + communication 50.0 % + other 18.8 %"), std::string::npos)
      << table;
}

}  // namespace
}  // namespace megatron::train
