// Configurations that users of Megatron-like trainers reported: accepted with the right numbers, or refused in one
// clear line that names option and value.
#include <gtest/gtest.h>

#include <sstream>

#include "config/summary.h"

namespace megatron::config {
namespace {

ParsedRun validate(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return parse_run(list, ParseMode::validate);
}

std::string model(int layers, const std::string& more) {
  return "--num-layers " + std::to_string(layers) +
         " --hidden-size 64 --num-attention-heads 4 --seq-length 8 --micro-batch-size 2 " + more;
}

std::string errors_of(const std::string& line) {
  std::string text;
  for (const std::string& error : validate(line).errors) text += error + "\n";
  return text;
}

/// One error line that holds all the texts.
void expect_refused(const std::string& line, const std::vector<std::string>& texts) {
  const std::string errors = errors_of(line);
  for (const std::string& text : texts) EXPECT_NE(errors.find(text), std::string::npos) << text << " in\n" << errors;
}

TEST(UserReports, VocabularyPaddingFollowsTheTensorSize) {
  const std::string vocabulary = "--vocab-size 37 --make-vocab-size-divisible-by 8 ";
  EXPECT_EQ(validate(model(2, vocabulary)).spec.model.padded_vocab_size, 40);
  EXPECT_EQ(validate(model(2, vocabulary + "--tensor-model-parallel-size 2")).spec.model.padded_vocab_size, 48);
}

TEST(UserReports, TokenizerLargerThanTheVocabulary) {
  expect_refused(model(2, "--tokenizer-type ByteLevel --vocab-size 37"), {"257", "37"});
}

TEST(UserReports, UnevenLayersAreNeverDropped) {
  const ParsedRun ten = validate(model(10, "--pipeline-model-parallel-size 3"));
  EXPECT_TRUE(ten.accepted());
  EXPECT_EQ(ten.spec.parallel.layers_per_stage, (std::vector<std::int64_t>{3, 4, 3}));
  EXPECT_EQ(summarize(ten).parameters.layers.size(), 10u);
  const ParsedRun seven = validate(model(7, "--pipeline-model-parallel-size 2"));
  EXPECT_TRUE(seven.accepted());
  EXPECT_NE(seven.notices.end(),
            std::find(seven.notices.begin(), seven.notices.end(), "layers do not divide over the stages: split 4 / 3"));
}

TEST(UserReports, VirtualStagesNameTheThreeNumbers) {
  expect_refused(model(6, "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2"),
                 {"6 layers", "pipeline size 2", "2 layers per virtual stage"});
}

TEST(UserReports, StageListMustAddUp) {
  expect_refused(model(2, "--decoder-last-pipeline-num-layers 1"), {"1 of 2 layers"});
  expect_refused(model(4,
                       "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1 "
                       "--decoder-last-pipeline-num-layers 1"),
                 {"hold 2 of 4 layers"});
}

TEST(UserReports, OneGroupIsShared) {
  EXPECT_TRUE(
      validate(model(2, "--group-query-attention --num-query-groups 1 --tensor-model-parallel-size 2")).accepted());
}

TEST(UserReports, GroupsMustDivideTheHeads) {
  const std::string six =
      "--num-layers 2 --hidden-size 48 --num-attention-heads 6 --seq-length 8 --micro-batch-size 1 "
      "--group-query-attention --num-query-groups ";
  expect_refused(six + "4", {"6 heads do not divide into 4 groups", "nearest: 3, 6"});
  expect_refused(six + "0", {"--num-query-groups 0", "at least 1"});
}

TEST(UserReports, SequenceMustDivideOverTheRanks) {
  expect_refused(
      "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 10 --micro-batch-size 1 "
      "--tensor-model-parallel-size 4 --sequence-parallel",
      {"10 tokens do not divide over 4 ranks", "nearest: 8, 12"});
}

TEST(UserReports, ContextNeedsAMultipleOfTwiceItsSize) {
  expect_refused(
      "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 12 --micro-batch-size 1 "
      "--context-parallel-size 4",
      {"12 tokens", "= 8"});
}

TEST(UserReports, BatchArithmetic) {
  expect_refused(model(2, "--global-batch-size 10 --world-size 3"),
                 {"10 is not k x micro-batch 2 x data parallel 3", "nearest: 6, 12"});
}

TEST(UserReports, EvaluationBatchIsCheckedAtTheStart) {
  expect_refused(model(2, "--global-batch-size 8 --world-size 2 --eval-global-batch-size 6"),
                 {"--eval-global-batch-size 6", "nearest: 4, 8"});
}

TEST(UserReports, WorldSizeListsItsFactors) {
  expect_refused(model(4, "--world-size 2 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"),
                 {"world size 2", "tensor 2 x pipeline 2", "= 4"});
}

TEST(UserReports, EightMistakesOneLineEach) {
  const std::string base = model(4, "");
  for (const auto& [more, name] :
       std::vector<std::pair<std::string, std::string>>{{"--tensor-model-parallel-size 8", "--num-attention-heads 4"},
                                                        {"--hidden-size 62", "--hidden-size 62"},
                                                        {"--max-position-embeddings 4", "--max-position-embeddings 4"},
                                                        {"--min-lr 1 --lr 0.1", "--min-lr 1"},
                                                        {"--save x", "--save-interval"},
                                                        {"--fp16 --bf16", "--fp16"},
                                                        {"--train-iters 2 --train-samples 8", "--train-samples 8"},
                                                        {"--hidden-dropout 1.5", "--hidden-dropout 1.5"}}) {
    const ParsedRun run = validate(base + more);
    ASSERT_EQ(run.errors.size(), 1u) << more;
    EXPECT_NE(run.errors[0].find(name), std::string::npos) << run.errors[0];
    EXPECT_EQ(run.errors[0].find('\n'), std::string::npos);
  }
}

TEST(UserReports, SixtyFourRanksOnAnyMachine) {
  EXPECT_TRUE(validate(model(8,
                             "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --world-size 64 "
                             "--global-batch-size 32"))
                  .accepted());
}

TEST(UserReports, WarmUpLongerThanTheRun) {
  expect_refused(model(2, "--train-iters 10 --lr 1e-3 --lr-warmup-iters 20"), {"warm-up of 20", "schedule of 10"});
}

TEST(UserReports, Splits) {
  for (const std::string split : {"-2,2,0", "70,x1,29", "0,0,0", "90,abc5,5", "-1,1,0"})
    expect_refused(model(2, "--split " + split), {"--split " + split});
  expect_refused(model(2, "--split 70,x1,29"), {"field 2 \"x1\""});
  EXPECT_TRUE(validate(model(2, "--split 969,30,1")).accepted());
  const std::vector<std::string> spaced = {"--num-layers",          "2", "--hidden-size", "64",
                                           "--num-attention-heads", "4", "--seq-length",  "8",
                                           "--micro-batch-size",    "2", "--split",       " 8, 1 ,1 "};
  EXPECT_TRUE(parse_run(spaced, ParseMode::validate).accepted());
}

TEST(UserReports, TwoInterleavedStages) {
  expect_refused(model(8,
                       "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 "
                       "--no-overlap-p2p-communication"),
                 {"the same rank"});
  EXPECT_TRUE(
      errors_of(
          model(8, "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 --global-batch-size 4"))
          .empty());
}

const std::string kB171 =
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --group-query-attention --num-query-groups 2 "
    "--ffn-hidden-size 128 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --vocab-size 100 --seq-length 8 --micro-batch-size 1 ";

TEST(UserReports, ParametersOfTheModelAndOfEachStage) {
  EXPECT_EQ(summarize(validate(kB171)).parameters.unpadded_vocab, 86848);
  const Summary summary = summarize(validate(kB171 + "--pipeline-model-parallel-size 2"));
  EXPECT_EQ(summary.stage_parameters_unpadded_vocab, (std::vector<std::int64_t>{43392, 43456}));
  ASSERT_TRUE(summary.costs.has_value());
  ASSERT_EQ(summary.costs->memory.size(), 2u);
  EXPECT_EQ(summary.costs->memory[0].parameters, 4 * (43392 + 28 * 64));  // rows of padding are memory too
  EXPECT_EQ(summary.costs->memory[1].parameters, 4 * (43456 + 28 * 64));  // of each stage its own, no mean
}

TEST(UserReports, UnsupportedPairsAreRefusedByName) {
  for (const std::string more : {"--window-size 4,0", "--qk-clip", "--softmax-type learnable", "--num-experts 4",
                                 "--multi-latent-attention", "--fp8-format hybrid"}) {
    const ParsedRun run = validate(model(4, "--pipeline-model-parallel-size 2 " + more));
    ASSERT_FALSE(run.not_built.empty()) << more;
    EXPECT_NE(run.not_built[0].find(more), std::string::npos) << run.not_built[0];
  }
}

}  // namespace
}  // namespace megatron::config
