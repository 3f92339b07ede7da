#include "config/presets.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "config/summary.h"

namespace megatron::config {
namespace {

ParsedRun run_of(const std::string& name, const std::string& architecture) {
  return parse_run(preset_args(name, architecture), ParseMode::validate);
}

TEST(Presets, SizesOfTheModelsTheyAreNamedAfter) {
  const ParsedRun gpt2 = run_of("gpt2-124m", "gpt2");
  ASSERT_TRUE(gpt2.accepted());
  // 12 layers of 768 as in GPT-2: 85 056 000 in the layers and the last norm, then both tables.
  EXPECT_EQ(summarize(gpt2).parameters.total, 85056000 + (50304 + 256) * 768);
  const ParsedRun longer = run_of("gpt2-124m-s1024", "gpt2");
  EXPECT_EQ(longer.spec.model.max_position_embeddings, 1024);
  EXPECT_EQ(longer.spec.batch.micro_batch_size, 1);
}

TEST(Presets, LlamaForm) {
  const ParsedRun run = run_of("tiny", "llama");
  ASSERT_TRUE(run.accepted());
  const spec::ModelSpec& m = run.spec.model;
  EXPECT_EQ(m.ffn_hidden_size, 704);  // 8/3 of 256 = 682.7, up to a multiple of 64
  EXPECT_EQ(m.num_query_groups, 2);
  EXPECT_TRUE(m.gated_linear_unit);
  EXPECT_EQ(m.position_embedding, spec::PositionEmbedding::rope);
  EXPECT_TRUE(m == parse_run(std::vector<std::string>{"--preset", "tiny-llama"}, ParseMode::validate).spec.model);
}

TEST(Presets, MistakesNameWhatIsKnown) {
  EXPECT_THROW(preset_args("huge", "gpt2"), ConfigError);
  EXPECT_THROW(preset_args("tiny", "bert"), ConfigError);
}

TEST(Presets, OptionsOfACommandsPresetAreNoMistakeOfTheUser) {
  const std::vector<std::string> base = {"--adam-beta2", "0.95", "--num-layers", "2"};
  const std::vector<std::string> args = {"--optimizer",           "sgd", "--hidden-size", "64",
                                         "--num-attention-heads", "4",   "--seq-length",  "8",
                                         "--micro-batch-size",    "1"};
  const ParsedRun run = parse_run(args, {ParseMode::validate, {}, {}, base});
  EXPECT_TRUE(run.accepted());
  EXPECT_EQ(run.spec.model.num_layers, 2);
  const std::vector<std::string> other = {"--num-layers", "3"};
  EXPECT_EQ(parse_run(other, {ParseMode::validate, {}, {}, base}).spec.model.num_layers, 3);
}

}  // namespace
}  // namespace megatron::config
