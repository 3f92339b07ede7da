#include "config/parse.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/check.h"

namespace megatron::config {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return list;
}

const std::string kModel =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --micro-batch-size 2 ";

ParsedRun validate(const std::string& line) { return parse_run(words(line), ParseMode::validate); }
ParsedRun train(const std::string& line) { return parse_run(words(line), ParseMode::train); }

/// All lines of a list, for searching.
std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

bool mentions(const std::vector<std::string>& lines, const std::string& text) {
  return joined(lines).find(text) != std::string::npos;
}

/// Accepted without error; prints the errors where not.
void expect_valid(const ParsedRun& run) { EXPECT_TRUE(run.errors.empty()) << joined(run.errors); }

TEST(CommandLine, FormsOfArgparse) {
  const ParsedRun run = validate(kModel + "--hidden-size=128 --train-iters 220_000_000 --lr=1e-4 --lr-warmup-iters=5");
  expect_valid(run);
  EXPECT_EQ(run.spec.model.hidden_size, 128);  // the last repeat wins
  EXPECT_EQ(run.spec.batch.train_iters, 220000000);
  EXPECT_EQ(run.spec.optimizer.lr, 1e-4);
}

TEST(CommandLine, NegativeNumbersAreValues) {
  const ParsedRun run = validate(kModel + "--tokenizer-type NullTokenizer --vocab-size 10 --null-tokenizer-pad-id -1");
  expect_valid(run);
  EXPECT_EQ(run.spec.data.null_tokenizer_pad_id, -1);
  EXPECT_TRUE(mentions(validate(kModel + "--lr -1").errors, "--lr -1 (command line): must be at least 0; nearest: 0"));
}

TEST(CommandLine, ListsEndAtTheNextOption) {
  const ParsedRun run = validate(kModel + "--data-path 0.3 a 0.7 b --seed 5");
  expect_valid(run);
  EXPECT_EQ(run.spec.data.data_path, words("0.3 a 0.7 b"));
  EXPECT_EQ(run.spec.numerics.seed, 5u);
}

TEST(CommandLine, WhatCannotBeReadIsNamed) {
  const ParsedRun run = validate(kModel + "--lr --swiglu=1 --optimizer admaw --hiden-dropout 0 stray --seed 1.5");
  EXPECT_TRUE(mentions(run.errors, "--lr (command line): needs a value"));
  EXPECT_TRUE(mentions(run.errors, "--swiglu=1 (command line): is a switch"));
  EXPECT_TRUE(mentions(run.errors, "--optimizer admaw (command line): allowed are adam, sgd"));
  EXPECT_TRUE(mentions(run.errors, "nearest: --hidden-dropout"));
  EXPECT_TRUE(mentions(run.errors, "--seed 1.5 (command line): is not a whole number"));
  EXPECT_EQ(run.errors.size(), 5u);  // all at once; `stray` counts as a value of the unknown option
  EXPECT_TRUE(std::is_sorted(run.errors.begin(), run.errors.end()));
}

TEST(CommandLine, NoAbbreviations) {
  EXPECT_TRUE(mentions(validate(kModel + "--tensor-model-parallel 2").errors, "nearest: --tensor-model-parallel-size"));
}

TEST(CommandLine, OwnOptionsComeBackUnread) {
  const ParsedRun run = parse_run(words("step --preset tiny --steps 3 --json"),
                                  {ParseMode::layout, {{"--steps", true, ""}, {"--json", false, ""}}, {}});
  expect_valid(run);
  EXPECT_EQ(run.own.at("--steps"), "3");
  EXPECT_EQ(run.own.at("--json"), "true");
  EXPECT_EQ(run.rest, words("step"));
  EXPECT_EQ(run.spec.model.hidden_size, 256);
}

/// A YAML file in a folder that goes away with the test.
class YamlFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    path_ = ::testing::TempDir() + "megatron_config_test.yaml";
    std::ofstream(path_) << text;
    return path_;
  }
  ParsedRun read(const std::string& text, const std::string& more = "") {
    return validate("--config " + write(text) + " " + more);
  }
  std::string at(int line) const { return "(" + path_ + ":" + std::to_string(line) + ")"; }
  std::string path_;
};

constexpr const char* kYaml =
    "tensor_model_parallel_size: 8\npipeline_model_parallel_size: 4\nnum_layers: 32\nhidden_size: 4096\n"
    "num_attention_heads: 32\nffn_hidden_size: 16384\nmicro_batch_size: 4\nglobal_batch_size: 1024\nlr: 1e-4\n"
    "seq_len: 2048\nbf16: True\n";

TEST_F(YamlFile, AnExistingFileIsAcceptedAsItIs) {
  const ParsedRun run = read(kYaml, "--world-size 32");
  EXPECT_TRUE(run.accepted()) << joined(run.errors) << joined(run.not_built);
  EXPECT_EQ(run.spec.parallel.data_parallel, 1);
  EXPECT_EQ(run.spec.batch.num_micro_batches, 256);
  EXPECT_EQ(run.spec.model.padded_vocab_size, 51200);  // 50257 rounded up to 128 x 8
  EXPECT_EQ(run.spec.model.max_position_embeddings, 2048);
  EXPECT_EQ(run.spec.parallel.layers_per_stage, (std::vector<std::int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(run.spec.optimizer.lr, 1e-4);
  for (const char* notice : {"no data", "no length", "50257"}) EXPECT_TRUE(mentions(run.notices, notice)) << notice;
  const ParsedRun training = train("--config " + path_ + " --world-size 32");
  for (const char* name : {"--train-iters is required", "--data-path is required", "--mock-data"})
    EXPECT_TRUE(mentions(training.errors, name)) << name;
}

TEST_F(YamlFile, CommandLineGoesBeforeYamlBeforePreset) {
  const ParsedRun run = read("hidden_size: 128\nnum_layers: 6\n", "--preset tiny --num-layers 8");
  EXPECT_EQ(run.spec.model.num_layers, 8);
  EXPECT_EQ(run.spec.model.hidden_size, 128);
  EXPECT_EQ(run.spec.model.num_attention_heads, 4);  // the preset's
}

TEST_F(YamlFile, ScalarsHaveOneMeaning) {
  const ParsedRun run = read(
      "num_layers: 010\nhidden_size: \"64\"\nnum_attention_heads: 4\nseq_length: 1_6\n"
      "micro_batch_size: 1\nlr: 1e-4\nswiglu: yes\nweight_decay: .1\ntrain_iters: null\n");
  expect_valid(run);
  EXPECT_EQ(run.spec.model.num_layers, 10);
  EXPECT_EQ(run.spec.model.seq_length, 16);
  EXPECT_TRUE(run.spec.model.gated_linear_unit);
  EXPECT_EQ(run.spec.optimizer.weight_decay, 0.1);
  EXPECT_FALSE(run.spec.batch.train_iters);
}

TEST_F(YamlFile, SpellingOrDestinationField) {
  EXPECT_FALSE(read("disable_bias_linear: True\n").spec.model.add_bias_linear);
  EXPECT_FALSE(read("add_bias_linear: False\n").spec.model.add_bias_linear);
  EXPECT_TRUE(read("add_bias_linear: True\n").spec.model.add_bias_linear);
  EXPECT_TRUE(read("disable_bias_linear: False\n").spec.model.add_bias_linear);
  EXPECT_EQ(read("layernorm_epsilon: 1e-6\n").spec.model.norm_epsilon, 1e-6);
  EXPECT_EQ(read("check_for_nan_in_loss_and_grad: False\n").spec.log.check_for_nan, false);
  const ParsedRun both = read("add_bias_linear: False\ndisable_bias_linear: True\n");
  EXPECT_TRUE(mentions(both.errors, "disable_bias_linear " + at(2) + ": names the same option as add_bias_linear"));
}

TEST_F(YamlFile, GatedActivationsByName) {
  const spec::ModelSpec geglu = read("geglu: True\n").spec.model;
  EXPECT_TRUE(geglu.gated_linear_unit);
  EXPECT_EQ(geglu.activation, spec::Activation::gelu_tanh);
  const spec::ModelSpec exact =
      read("gated_linear_unit: True\nactivation_func: gelu\nbias_gelu_fusion: False\n").spec.model;
  EXPECT_TRUE(exact.gated_linear_unit);
  EXPECT_EQ(exact.activation, spec::Activation::gelu_erf);
}

TEST_F(YamlFile, MistakesHaveLineNumbers) {
  const ParsedRun run = read(
      "hidden_size: 64\nmodel:\n  x: 1\nhidden_size: 32\nhiden_dropout: 0.1\nswiglu: maybe\n"
      "num_layers: [1, 2]\n");
  EXPECT_TRUE(mentions(run.errors, "hidden_size " + at(4) + ": stands twice, first on line 1"));
  EXPECT_TRUE(mentions(run.errors, "model " + at(2) + ": holds a nested map"));
  EXPECT_TRUE(mentions(run.errors, "hiden_dropout 0.1 " + at(5) + ": unknown option; nearest: --hidden-dropout"));
  EXPECT_TRUE(mentions(run.errors, "swiglu " + at(6)));
  EXPECT_TRUE(mentions(run.errors, "num_layers " + at(7) + ": takes one value"));
}

TEST_F(YamlFile, OptionsOfMegatronWithoutEffect) {
  const ParsedRun run = read("masked_softmax_fusion: False\nuse_flash_attn: True\ndata_path: 0.3 a 0.7 b\n");
  EXPECT_TRUE(run.not_built.empty()) << joined(run.not_built);
  EXPECT_EQ(run.spec.data.data_path, words("0.3 a 0.7 b"));
}

TEST_F(YamlFile, DamagedFiles) {
  EXPECT_TRUE(mentions(read("a: [1, 2\nb: }\n").errors, path_ + ":"));
  EXPECT_TRUE(mentions(read("- a\n- b\n").errors, "not a list of"));
  EXPECT_TRUE(mentions(validate("--config /nowhere/run.yaml").errors, "cannot be read"));
  // A folder opens like a file; it must not count as an empty one.
  EXPECT_TRUE(mentions(validate("--config " + ::testing::TempDir()).errors, "cannot be read"));
  EXPECT_TRUE(mentions(read(std::string("seed: 5\0\n", 9)).errors, "zero byte"));
  EXPECT_TRUE(mentions(read("seed: 5\n---\nseed: 6\n").errors, path_ + ":2: a second YAML document"));
  EXPECT_TRUE(mentions(read("seed: 5\n...\nlr: 6\n").errors, path_ + ":3: a second YAML document"));
  expect_valid(read("%YAML 1.2\n---\nseed: 5\n...\n", kModel));
  EXPECT_TRUE(read("").notices.size() > 0);
}

TEST(Rules, ValuesThatWereNotGivenAreMarked) {
  // The width of the MLP follows from --hidden-size; the pipeline size is the table's default.
  const ParsedRun run = validate(kModel + "--tensor-model-parallel-size 3");
  EXPECT_TRUE(mentions(run.errors, "--ffn-hidden-size 256 (derived), --tensor-model-parallel-size 3 (command line)"));
  EXPECT_TRUE(mentions(validate(kModel + "--world-size 3 --tensor-model-parallel-size 2").errors,
                       "--pipeline-model-parallel-size 1 (default)"));
}

TEST_F(YamlFile, AMessageStaysOneLine) {
  for (const char* text : {"seed: |\n  5\n", "\"se\\ned\": 5\n", "data_path: [a, \"b\\tc\"]\n"}) {
    const ParsedRun run = read(text, kModel);
    ASSERT_EQ(run.errors.size(), 1U) << text;
    EXPECT_EQ(run.errors[0], path_ + ":1: holds a line break or another control character") << text;
  }
  std::vector<std::string> args = words(kModel);
  args.insert(args.end(), {"--seed", "5\n6"});
  const ParsedRun run = parse_run(args, ParseMode::validate);
  ASSERT_EQ(run.errors.size(), 1U);
  EXPECT_EQ(run.errors[0], "--seed (command line): holds a line break or another control character");
}

TEST_F(YamlFile, AnEmptyTextIsNoValue) {
  const ParsedRun run = read("save: \"\"\n", kModel);
  EXPECT_TRUE(mentions(run.errors, "save " + at(1) + ": the value is empty"));
  EXPECT_TRUE(mentions(validate(kModel + "--load=").errors, "--load= (command line): the value is empty"));
  expect_valid(read("save:\n", kModel));  // as if it were not there
}

TEST(Rules, CountsOfSamplesStayWithin64Bits) {
  EXPECT_TRUE(mentions(validate(kModel + "--global-batch-size 1000000000 --train-iters 1000000000000").errors,
                       "more than 10^15 samples; nearest: 1000000"));
  EXPECT_TRUE(mentions(validate(kModel + "--train-iters 1000 --eval-interval 1 --eval-iters 1000000000000").errors,
                       "--eval-iters 1000000000000 (command line)"));
  expect_valid(validate(kModel + "--train-iters 1000000000 --global-batch-size 1000000"));
}

TEST(Rules, PathsOfEachSplitLeaveNothingToSplit) {
  EXPECT_TRUE(mentions(validate(kModel + "--train-data-path a --split 9,1,0").errors, "exclude each other"));
  expect_valid(validate(kModel + "--train-data-path a"));
}

TEST(Rules, WordsLeftOverAreRefused) {
  const ParsedRun run = parse_run(words("stray --seed 5"), ParseMode::layout);
  EXPECT_TRUE(run.accepted());
  EXPECT_THROW(require_accepted(run), ConfigError);
}

TEST(Rules, DataCachePathIsAccepted) { EXPECT_TRUE(validate(kModel + "--data-cache-path /tmp/cache").accepted()); }

TEST(Rules, Recompute) {
  const std::string full = kModel + "--recompute-granularity full --recompute-method block --recompute-num-layers 1 ";
  const ParsedRun run = validate(full);
  EXPECT_TRUE(run.accepted());
  EXPECT_EQ(run.spec.recompute.granularity, spec::RecomputeGranularity::full);
  EXPECT_EQ(run.spec.recompute.method, spec::RecomputeMethod::block);
  const ParsedRun core = validate(kModel + "--recompute-activations ");
  EXPECT_TRUE(core.accepted());
  EXPECT_EQ(core.spec.recompute.active_modules(), (spec::RecomputeModules{true, false, false}));
  const ParsedRun two = validate(kModel + "--recompute-granularity selective --recompute-modules layernorm mlp ");
  EXPECT_TRUE(two.accepted());
  EXPECT_EQ(two.spec.recompute.active_modules(), (spec::RecomputeModules{false, true, true}));
  const std::pair<std::string, const char*> refused[] = {
      {"--recompute-granularity full --recompute-num-layers 1", "full needs --recompute-method uniform or block"},
      {"--recompute-granularity full --recompute-method uniform", "full needs --recompute-num-layers"},
      {"--recompute-granularity selective --recompute-method uniform", "selective takes no method"},
      {"--recompute-method uniform", "needs --recompute-granularity full"},
      {"--recompute-granularity selective --recompute-modules attention", "module attention is unknown"},
      {"--recompute-activations --distribute-saved-activations", "needs --recompute-granularity full and a tensor"},
      {"--recompute-activations --recompute-granularity full --recompute-method block --recompute-num-layers 1",
       "exclude each other"}};
  for (const auto& [options, text] : refused) EXPECT_TRUE(mentions(validate(kModel + options).errors, text)) << options;
  EXPECT_TRUE(mentions(validate(full + "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
                                       "--distribute-saved-activations")
                           .errors,
                       "each rank holds its part already"));
}

TEST(Rules, NotBuiltStandsApart) {
  const ParsedRun run = validate(kModel + "--world-size 2 --context-parallel-size 2 --num-experts 4 --optimizer soap");
  expect_valid(run);
  for (const char* name : {"--context-parallel-size 2", "--num-experts 4", "--optimizer soap"})
    EXPECT_TRUE(mentions(run.not_built, name)) << name;
  EXPECT_THROW(require_accepted(run), ConfigError);
  // Values that ask for nothing.
  EXPECT_TRUE(validate(kModel + "--context-parallel-size 1 --expert-model-parallel-size 1 --timing-log-level 0 "
                                "--use-flash-attn --main-grads-dtype fp32 --overlap-grad-reduce")
                  .accepted());
}

/// Every batch of the trajectory is looked at before the run starts.
TEST(Rules, BatchesThatChange) {
  const std::string run = kModel + "--world-size 2 --train-iters 100 --lr 1e-3 ";
  const std::string ramp = run + "--micro-batch-size 2 --global-batch-size 32 --rampup-batch-size ";
  const ParsedRun good = validate(ramp + "8 8 96");
  EXPECT_TRUE(good.accepted()) << good.errors.front();
  ASSERT_TRUE(good.spec.batch.rampup.has_value());
  EXPECT_EQ(good.spec.batch.num_micro_batches, 8);
  EXPECT_TRUE(
      mentions(validate(ramp + "6 2 96").refused, "global batch 6 (from sample 0 on) is not k x micro-batch 2"));
  EXPECT_TRUE(mentions(validate(ramp + "8 7 96").errors, "not a whole number of increments of 7"));
  EXPECT_TRUE(mentions(validate(ramp + "32 8 96").errors, "must be below the global batch 32"));
  EXPECT_TRUE(mentions(validate(ramp + "8 8 0").errors, "at least 1 sample"));
  EXPECT_TRUE(validate(ramp + "6 2 96").errors.empty()) << "Megatron-LM ignores the option";
  EXPECT_FALSE(validate(ramp + "6 2 96").accepted());
  for (const char* bad : {"8 8", "8 8 x", "a b c", "8 8.5 96", "8 8 96 1"}) {
    const ParsedRun refused = validate(ramp + bad);
    ASSERT_EQ(refused.errors.size(), 1U) << joined(refused.errors);
    EXPECT_TRUE(mentions(refused.errors, "three whole numbers")) << joined(refused.errors);
    EXPECT_TRUE(refused.refused.empty()) << joined(refused.refused);
  }
  EXPECT_TRUE(mentions(validate(run + "--micro-batch-size 2 --rampup-batch-size 4 4 8").errors, "--global-batch-size"));
  // Rounding down helps as long as something is left.
  EXPECT_TRUE(validate(ramp + "6 2 96 --decrease-batch-size-if-needed").accepted());
  EXPECT_TRUE(mentions(validate(ramp + "2 2 96 --decrease-batch-size-if-needed").refused, "would never advance"));
  const ParsedRun rounded =
      validate(run + "--micro-batch-size 2 --global-batch-size 11 --decrease-batch-size-if-needed");
  EXPECT_TRUE(rounded.accepted());
  EXPECT_EQ(rounded.spec.batch.global_batch_size, 8);
  EXPECT_TRUE(mentions(rounded.notices, "rounded down to 8"));
  EXPECT_TRUE(
      mentions(validate(run + "--micro-batch-size 8 --global-batch-size 11 --decrease-batch-size-if-needed").errors,
               "would never advance"));
}

TEST(Rules, BatchesInSteps) {
  const std::string run = kModel +
                          "--world-size 2 --train-samples 1000 --lr 1e-3 --seq-length 64 "
                          "--micro-batch-size 2 --step-batch-size-schedule ";
  const auto steps = [&](const std::string& text, const std::string& more = "") {
    std::vector<std::string> args = words(run);
    args.push_back(text);
    for (const std::string& word : words(more)) args.push_back(word);
    return parse_run(args, ParseMode::validate);
  };
  const ParsedRun good = steps("0:4 1.28K:8 6400:16");
  EXPECT_TRUE(good.accepted()) << good.errors.front();
  ASSERT_EQ(good.spec.batch.batch_steps.size(), 3U);
  EXPECT_EQ(good.spec.batch.batch_steps[1].first_sample, 20);
  EXPECT_EQ(good.spec.batch.global_batch_size, 16);
  EXPECT_EQ(good.spec.batch.num_micro_batches, 4);
  EXPECT_TRUE(mentions(steps("0:4 640:6").errors, "global batch 6 (from sample 12, token 768, on)"));
  EXPECT_TRUE(mentions(steps("64:4").errors, "must have threshold 0 (thresholds are tokens, 64 of them a sample)"));
  EXPECT_TRUE(mentions(steps("0:4 6400:8 6410:16").errors, "both begin at sample 100 (thresholds are tokens"));
  EXPECT_TRUE(mentions(steps("four").errors, "TOKENS:BATCH_SIZE"));
  EXPECT_TRUE(mentions(steps("0:4 6400:8", "--global-batch-size 8").errors, "exclude each other"));
  EXPECT_TRUE(mentions(steps("0:4 6400:8", "--decrease-batch-size-if-needed").errors, "exclude each other"));
  // A size that the run never reaches is no obstacle, unless it is evaluated with.
  EXPECT_TRUE(steps("0:4 64M:6 128M:8").accepted());
  EXPECT_TRUE(mentions(steps("0:4 64M:6").errors, "evaluation batch 6"));
  EXPECT_TRUE(steps("0:4 64M:6", "--eval-iters 0").accepted());
  EXPECT_TRUE(steps("0:4 64M:6", "--eval-global-batch-size 4").accepted());
}

TEST(Rules, Optimizers) {
  EXPECT_TRUE(mentions(validate(kModel + "--optimizer sgd --sgd-momentum 0 --sgd-nesterov").errors, "Nesterov"));
  EXPECT_TRUE(mentions(validate(kModel + "--optimizer lion --no-decoupled-weight-decay").errors, "--optimizer adam"));
  EXPECT_TRUE(mentions(validate(kModel + "--optimizer muon --muon-num-ns-steps 6").errors, "nearest: 5, 10"));
  EXPECT_TRUE(validate(kModel + "--optimizer muon --muon-coefficient-type simple --muon-num-ns-steps 6 "
                                "--muon-tp-mode distributed --muon-scalar-optimizer lion --lion-beta1 0.9")
                  .accepted());
  for (const char* name : {"soap", "adaptive_muon", "dist_muon"})
    EXPECT_TRUE(mentions(validate(kModel + "--optimizer " + name).not_built, name));
  const std::pair<const char*, const char*> refused[] = {
      {"--use-precision-aware-optimizer", "float32"},
      {"--main-grads-dtype bf16", "float32"},
      {"--main-params-dtype fp16", "float32"},
      {"--exp-avg-dtype bf16", "float32"},
      {"--exp-avg-sq-dtype fp8", "float32"},
      {"--optimizer-cpu-offload", "main memory"},
      {"--num-distributed-optimizer-instances 2", "all data-parallel ranks"},
      {"--use-torch-fsdp2", "--use-megatron-fsdp"},
      {"--outer-dp-sharding-strategy optim", "--data-parallel-sharding-strategy"}};
  for (const auto& [option, reason] : refused) {
    const ParsedRun run = validate(kModel + option);
    EXPECT_TRUE(mentions(run.not_built, option)) << option;
    EXPECT_TRUE(mentions(run.not_built, reason)) << option;
  }
}

TEST(Rules, RemovedOptionsSayWhatFollowed) {
  EXPECT_TRUE(mentions(validate(kModel + "--batch-size 4").errors, "was removed"));
  EXPECT_TRUE(mentions(validate(kModel + "--num-key-value-heads 2").errors, "--num-query-groups"));
}

TEST(Rules, WorldSizes) {
  // Without --world-size: tensor x pipeline, so data parallel 1.
  EXPECT_EQ(
      validate(kModel + "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2").spec.parallel.world_size, 4);
  ParseOptions launched{ParseMode::validate, {}, 8};
  EXPECT_EQ(parse_run(words(kModel), launched).spec.parallel.data_parallel, 8);
  EXPECT_TRUE(
      mentions(parse_run(words(kModel + "--world-size 4"), launched).errors, "the launcher started 8 processes"));
  EXPECT_TRUE(parse_run(words(kModel + "--world-size 8"), launched).errors.empty());
}

TEST(Rules, SequenceParallelTurnsOffAtTensorSizeOne) {
  const ParsedRun run = validate(kModel + "--sequence-parallel");
  expect_valid(run);
  EXPECT_FALSE(run.spec.parallel.sequence_parallel);
  EXPECT_TRUE(mentions(run.notices, "--sequence-parallel is off"));
}

TEST(Rules, CompleteRunWithAModelFromElsewhere) {
  ParsedRun run = parse_run(words("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --world-size 8"),
                            ParseMode::layout);
  expect_valid(run);
  run.spec.model = validate(kModel + "--swiglu --vocab-size 37").spec.model;
  const spec::ModelSpec before = run.spec.model;
  EXPECT_TRUE(complete_run(run.spec).empty());
  EXPECT_EQ(run.spec.parallel.data_parallel, 2);
  EXPECT_EQ(run.spec.parallel.layers_per_stage, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(run.spec.model.padded_vocab_size, 256);
  run.spec.model.padded_vocab_size = before.padded_vocab_size;
  EXPECT_EQ(run.spec.model, before);
  run.spec.model.num_attention_heads = run.spec.model.num_query_groups = 3;
  EXPECT_TRUE(mentions(complete_run(run.spec), "3 heads do not divide over 2 ranks"));
}

}  // namespace
}  // namespace megatron::config
