// What configurations say about themselves: counts of a batch that changes, ranges of numbers, options without effect.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "config/parse.h"
#include "config/summary.h"

namespace megatron::config {
namespace {

const std::string kModel =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --micro-batch-size 2 ";

ParsedRun validate(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return parse_run(words, ParseMode::validate);
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

bool mentions(const std::vector<std::string>& lines, const std::string& text) {
  return joined(lines).find(text) != std::string::npos;
}

/// Counts hold of a step with the largest batch that the run reaches.
TEST(Summary, TheLargestBatchIsTheLargestThatIsReached) {
  const std::string run = kModel + "--world-size 2 --lr 1e-3 --seq-length 64 --micro-batch-size 2 ";
  const std::string ramp = "--global-batch-size 32 --rampup-batch-size 8 8 96 ";
  struct Case {
    std::string more;
    std::int64_t batch;
    bool reaches_all;
  };
  for (const auto& [more, batch, reaches_all] :
       std::vector<Case>{{"--train-iters 4 --step-batch-size-schedule 0:4,64M:8", 4, false},
                         {"--train-samples 40 --step-batch-size-schedule 0:4,2560:8", 4, false},
                         {"--train-samples 48 --step-batch-size-schedule 0:4,2560:8", 8, true},
                         {"--step-batch-size-schedule 0:4,64M:8", 8, true},
                         {"--train-iters 30 --step-batch-size-schedule 0:8,640:4", 8, true},
                         {"--train-iters 1 " + ramp, 8, false},
                         {"--train-iters 8 " + ramp, 24, false},
                         {"--train-iters 9 " + ramp, 32, true}}) {
    const ParsedRun parsed = validate(run + more);
    ASSERT_TRUE(parsed.errors.empty()) << more << ": " << joined(parsed.errors);
    const Summary summary = summarize(parsed);
    EXPECT_EQ(summary.global_batch, batch) << more;
    EXPECT_EQ(summary.num_micro_batches, batch / 4) << more;
    EXPECT_EQ(summary.tokens_per_step, batch * 64) << more;
    const ParsedRun constant = validate(run + "--global-batch-size " + std::to_string(batch));
    EXPECT_EQ(summary.flops_per_step, summarize(constant).flops_per_step) << more;
    ASSERT_TRUE(summary.costs.has_value());
    EXPECT_EQ(summary.costs->step_traffic, summarize(constant).costs->step_traffic) << more;
    EXPECT_EQ(mentions(parsed.notices, "the run ends before global batch "), !reaches_all)
        << more << joined(parsed.notices);
  }
}

/// Costs of any size that can be written are counted, or refused; none leaves 64 bits.
TEST(Summary, LargestSizes) {
  for (const char* sizes :
       {"--num-layers 100000", "--micro-batch-size 1000000000 --seq-length 64 --global-batch-size 1000000000",
        "--num-layers 100000 --global-batch-size 16 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
        "Et|(t|)*99998tL",
        "--num-layers 20000 --pipeline-model-parallel-size 20000"}) {
    const ParsedRun run = validate(kModel + sizes);
    ASSERT_TRUE(run.accepted()) << joined(run.errors);
    const Summary summary = summarize(run);
    ASSERT_TRUE(summary.costs.has_value()) << sizes;
    for (const spec::RankMemory& rank : summary.costs->memory) {
      ASSERT_GT(rank.activations, 0) << sizes;
      ASSERT_GT(rank.parameters, 0) << sizes;
    }
  }
  const ParsedRun beyond = validate(kModel + "--micro-batch-size 1000000000 --seq-length 1000000");
  EXPECT_TRUE(mentions(beyond.errors, "more than 10^17 activations in a micro-batch; nearest: --micro-batch-size "))
      << joined(beyond.errors);
}

/// A number that no 64 bits hold is out of range, whatever else it is.
TEST(Rules, NumbersBeyondAllRangesNameTheRange) {
  const std::string run = kModel + "--micro-batch-size 1 ";
  for (const auto& [option, line] : std::map<std::string, std::string>{
           {"--train-iters 99999999999999999999", "must be at most 9223372036854775807; nearest: 9223372036854775807"},
           {"--seed 99999999999999999999", "must be at most 9223372036854775807"},
           {"--num-layers -99999999999999999999", "must be at least 1, at most 100000; nearest: 1"},
           {"--tensor-model-parallel-size 99999999999999999999", "must be at least 1, at most 65536; nearest: 65536"},
           {"--rampup-batch-size 1 1 99999999999999999999", "99999999999999999999 must be at most 9223372036854775807"},
           {"--lr 1e999", "must be at most 1.7976931348623157e+308"},
           {"--num-layers 12.0", "is not a whole number"},
           {"--num-layers 1e3", "is not a whole number"},
           {"--lr 1e", "is not a number"}}) {
    const ParsedRun parsed = validate(run + option);
    EXPECT_TRUE(mentions(parsed.errors, line)) << option << ": " << joined(parsed.errors);
  }
}

TEST(Rules, OptionsThatMeanNothingBesideOthersAreTold) {
  const std::string run = kModel + "--world-size 2 --micro-batch-size 1 --lr 1e-3 --train-iters 2 ";
  const auto told = [&](const std::string& more, const std::string& notice) {
    const ParsedRun parsed = validate(run + more);
    EXPECT_TRUE(parsed.accepted()) << more << ": " << joined(parsed.errors);
    EXPECT_TRUE(mentions(parsed.notices, notice)) << more << ": " << joined(parsed.notices);
  };
  for (const std::string option :
       {"--initial-loss-scale 8", "--min-loss-scale 8", "--loss-scale-window 8", "--hysteresis 8"})
    told("--fp16 --loss-scale 1024 " + option,
         option.substr(0, option.find(' ')) + ": no effect beside a constant --loss-scale");
  told("--overlap-grad-reduce --no-overlap", "--overlap-grad-reduce: no effect beside --no-overlap");
  told("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --no-overlap",
       "--overlap-param-gather: no effect beside --no-overlap");
  told("--use-megatron-fsdp --data-parallel-sharding-strategy no_shard --overlap-grad-reduce --overlap-param-gather",
       "--overlap-param-gather: no effect with --data-parallel-sharding-strategy no_shard");
  for (const char* option : {"--loss-scale", "--initial-loss-scale", "--min-loss-scale"}) {
    const ParsedRun large = validate(run + "--fp16 " + option + " 1e39");
    ASSERT_EQ(large.errors.size(), 1U) << joined(large.errors);
    EXPECT_TRUE(mentions(large.errors, "must be at most 3e+38; nearest: 3e+38")) << joined(large.errors);
    EXPECT_FALSE(mentions(validate(run + "--fp16 " + option + " 3e+38").errors, "float32"));
  }
}

}  // namespace
}  // namespace megatron::config
