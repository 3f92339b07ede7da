// Options that mean something only beside another one: an error or a notice, never silence.
#include <gtest/gtest.h>

#include <sstream>

#include "config/parse.h"

namespace megatron::config {
namespace {

ParsedRun validate(const std::string& more) {
  std::istringstream stream(
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --micro-batch-size 2 --train-iters 9 "
      "--lr 1e-3 " +
      more);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return parse_run(list, ParseMode::validate);
}

struct Case {
  const char *idle, *need;  // the option alone, and what its message names
  const char* met;          // what makes it an option with a meaning
};

constexpr Case kCases[] = {
    {"--num-query-groups 2", "--group-query-attention", "--group-query-attention"},
    {"--rotary-base 5000", "--position-embedding-type rope", "--position-embedding-type rope"},
    {"--rotary-percent 0.5", "--position-embedding-type rope", "--use-rotary-position-embeddings"},
    {"--rotary-interleaved", "--position-embedding-type rope", "--position-embedding-type rope"},
    {"--rotary-seq-len-interpolation-factor 2", "--position-embedding-type rope", "--position-embedding-type rope"},
    {"--use-rope-scaling", "--position-embedding-type rope", "--position-embedding-type rope"},
    {"--rope-scaling-factor 4", "--position-embedding-type rope", "--position-embedding-type rope --use-rope-scaling"},
    {"--lr-wsd-decay-iters 2", "--lr-decay-style WSD", "--lr-decay-style WSD"},
    {"--lr-wsd-decay-style linear", "--lr-decay-style WSD", "--lr-decay-style WSD --lr-wsd-decay-iters 2"},
    {"--start-weight-decay 0", "--weight-decay-incr-style", "--weight-decay-incr-style linear --end-weight-decay 0.1"},
    {"--no-save-optim", "--save", "--save x --save-interval 2"},
    {"--no-load-optim", "--load", "--load x"},
    {"--ckpt-step 3", "--load", "--load x"},
    {"--exit-on-missing-checkpoint", "--load", "--load x"},
    {"--override-opt_param-scheduler", "--load", "--load x"},
    {"--use-checkpoint-opt_param-scheduler", "--load", "--load x"},
    {"--sgd-momentum 0.5", "--optimizer sgd", "--optimizer sgd"},
    {"--sgd-nesterov", "--optimizer sgd", "--optimizer sgd"},
    {"--optimizer sgd --no-decoupled-weight-decay", "--optimizer adam", "--optimizer adam"},
    {"--optimizer sgd --adam-beta1 0.8", "--optimizer adam", "--optimizer adam"},
    {"--optimizer sgd --adam-beta2 0.8", "--optimizer adam", "--optimizer adam"},
    {"--optimizer sgd --adam-eps 1e-6", "--optimizer adam", "--optimizer adam"},
    {"--optimizer muon --muon-scalar-optimizer lion --adam-eps 1e-6", "--muon-scalar-optimizer adam",
     "--muon-scalar-optimizer adam"},
    {"--lion-beta1 0.8", "--optimizer lion", "--optimizer lion"},
    {"--optimizer muon --lion-beta2 0.8", "--muon-scalar-optimizer lion", "--muon-scalar-optimizer lion"},
    {"--muon-momentum 0.8", "--optimizer muon", "--optimizer muon"},
    {"--optimizer lion --muon-tp-mode blockwise", "--optimizer muon", "--optimizer muon"},
    {"--lr-warmup-init 1e-5", "a warm-up", "--lr-warmup-iters 3"},
    {"--apply-wd-to-qk-layernorm", "--qk-layernorm", "--qk-layernorm"},
    {"--null-tokenizer-eod-id 3", "--tokenizer-type NullTokenizer", "--tokenizer-type NullTokenizer --vocab-size 9"},
};

TEST(Needs, AnIdleOptionIsAnErrorThatNamesItsSwitch) {
  for (const Case& c : kCases) {
    const ParsedRun alone = validate(c.idle);
    ASSERT_EQ(alone.errors.size(), 1u) << c.idle;
    EXPECT_NE(alone.errors[0].find(std::string("needs ")), std::string::npos) << alone.errors[0];
    EXPECT_NE(alone.errors[0].find(c.need), std::string::npos) << alone.errors[0];
    EXPECT_NE(alone.errors[0].find("(command line)"), std::string::npos) << alone.errors[0];
    const ParsedRun together = validate(std::string(c.idle) + " " + c.met);
    EXPECT_TRUE(together.accepted()) << c.idle << " " << c.met << ": "
                                     << (together.errors.empty() ? "" : together.errors[0]);
  }
}

TEST(Needs, RecordedStepsMustBeAmongThoseOfTheRun) {
  const ParsedRun idle = validate("--profile-step-start 3 --profile-step-end 4");
  EXPECT_TRUE(idle.accepted());
  for (const char* name : {"--profile-step-start 3", "--profile-step-end 4"})
    EXPECT_EQ(std::count(idle.notices.begin(), idle.notices.end(),
                         std::string(name) + " (command line) has no effect: needs --profile or --trace"),
              1);
  EXPECT_TRUE(validate("--trace t.json --profile-step-start 3 --profile-step-end 4").accepted());
  EXPECT_TRUE(validate("--profile --profile-step-start 8").accepted());
  const std::pair<const char*, const char*> refused[] = {
      {"--profile", "the run ends before iteration 11, the first to be recorded; nearest: --profile-step-start 8"},
      {"--trace t.json --profile-step-start 9", "nearest: --profile-step-start 8"},
      {"--trace t.json --profile-step-start 4 --profile-step-end 4", "must be above the start"},
      {"--profile --skip-train --eval-iters 1", "--skip-train and --profile exclude each other"}};
  for (const auto& [words, text] : refused) {
    const ParsedRun run = validate(words);
    ASSERT_EQ(run.errors.size(), 1u) << words;
    EXPECT_NE(run.errors[0].find(text), std::string::npos) << run.errors[0];
  }
}

/// What an optimizer that is not built would need is unknown.
TEST(Needs, OptionsOfAnUnbuiltOptimizerPass) {
  const ParsedRun run = validate("--optimizer dist_muon --muon-momentum 0.8 --lion-beta1 0.8 --adam-eps 1e-6");
  EXPECT_TRUE(run.errors.empty()) << run.errors.front();
  EXPECT_EQ(run.not_built.size(), 1U);
}

/// What a run writes must not be another file of it, whatever way leads there.
TEST(Needs, WrittenFilesAreNoOtherFiles) {
  const std::string trace = "--trace out/a.json --profile-step-start 1 ";
  for (const char* other :
       {"--log-json out/a.json", "--log-json out/../out/./a.json", "--pipeline-schedule-out out/a.json",
        "--save out/a.json --save-interval 2", "--load out//a.json"}) {
    const ParsedRun run = validate(trace + other);
    ASSERT_EQ(run.errors.size(), 1U) << other;
    EXPECT_NE(run.errors[0].find("both name out/"), std::string::npos) << run.errors[0];
    EXPECT_NE(run.errors[0].find("--trace out/a.json (command line)"), std::string::npos) << run.errors[0];
  }
  const ParsedRun data = validate("--log-json out/corpus.idx --data-path 1 out/corpus");
  ASSERT_EQ(data.errors.size(), 1U);
  EXPECT_NE(data.errors[0].find("--data-path 1 out/corpus"), std::string::npos) << data.errors[0];
  EXPECT_TRUE(validate(trace + "--log-json out/b.json --save out --save-interval 2").accepted());
  EXPECT_TRUE(validate("--trace /dev/null --profile-step-start 1 --log-json /dev/null").accepted());
}

/// A value that was refused is one line, whatever else would be wrong with the value in its place.
TEST(Needs, ARefusedValueIsReportedOnce) {
  for (const char* words :
       {"--data-parallel-sharding-strategy bogus", "--recompute-method bogus", "--recompute-num-layers -1",
        "--sgd-momentum 2", "--rotary-percent x", "--lr-wsd-decay-style bogus", "--pipeline-memory-limit -1",
        "--pipeline-times 1", "--microbatch-group-size-per-virtual-pipeline-stage 0", "--num-query-groups 0",
        "--ckpt-step -1", "--recompute-granularity bogus --recompute-method block --recompute-num-layers 1",
        "--hidden-dropout 1", "--adam-beta1 1", "--lr-warmup-fraction 1"}) {
    const ParsedRun run = validate(words);
    EXPECT_EQ(run.errors.size(), 1U) << words << ": " << (run.errors.empty() ? "accepted" : run.errors.back());
    EXPECT_TRUE(run.not_built.empty()) << words;
  }
}

/// Public scripts that Megatron accepts give it alone.
TEST(Needs, SaveIntervalAloneIsANotice) {
  const ParsedRun run = validate("--save-interval 5");
  EXPECT_TRUE(run.accepted());
  ASSERT_FALSE(run.notices.empty());
  EXPECT_NE(
      std::find(run.notices.begin(), run.notices.end(), "--save-interval 5 (command line) has no effect: needs --save"),
      run.notices.end());
}

}  // namespace
}  // namespace megatron::config
