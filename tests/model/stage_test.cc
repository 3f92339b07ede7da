// Stages against PyTorch's numbers (always there, in double), and their ways of running: evaluation, logits, KV cache.
#include "model/stage.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/pytorch_numbers.h"
#include "support/grad_check.h"
#include "support/stage_fixture.h"

namespace megatron {
namespace {

using testing::WholeTensors;

constexpr std::int64_t kSamples = 2, kLength = 6, kVocab = 11;

spec::ModelSpec tiny_model(bool llama) {
  spec::ModelSpec model;
  model.num_layers = 2;
  model.hidden_size = 12;
  model.num_attention_heads = 4;
  model.ffn_hidden_size = 20;
  model.seq_length = kLength;
  model.vocab_size = kVocab;
  model.hidden_dropout = model.attention_dropout = 0.0;
  if (!llama) return model;
  model.kv_channels = 4;
  model.num_query_groups = 2;
  model.normalization = spec::Normalization::rms_norm;
  model.position_embedding = spec::PositionEmbedding::rope;
  model.activation = spec::Activation::silu;
  model.gated_linear_unit = true;
  model.add_bias_linear = false;
  model.qk_layernorm = true;
  model.untie_embeddings_and_output_weights = true;
  return model;
}

nn::MicroBatch wave_batch() {
  nn::MicroBatch batch = testing::meta_batch(kSamples, kLength);
  for (std::int64_t b = 0; b < kSamples; ++b)
    for (std::int64_t s = 0; s < kLength; ++s) {
      batch.ids.push_back((5 * b + 3 * s + s * s) % kVocab);
      batch.labels.push_back((7 * b + 2 * s + 1) % kVocab);
      batch.loss_mask.push_back(0.5F * static_cast<float>((b + s) % 4));
      batch.tokens.sample_index.push_back(b);
      batch.tokens.position.push_back(s);
    }
  return batch;
}

/// The parameters of make_pytorch_numbers.py.
WholeTensors wave_parameters(const testing::PytorchNumbers& numbers, const spec::RunSpec& run) {
  std::map<std::string, std::int64_t> sizes;
  testing::run_mesh(testing::make_parallel(1), [&](mesh::Rank& rank) {
    auto built = model::build_model(rank, testing::make_run(run.model, testing::make_parallel(1)));
    model::Stage* const stage = &built->chunk(0);
    for (const nn::Parameter* p : stage->parameters()) sizes[p->name] = p->sharding.numel();
  });
  WholeTensors whole;
  for (std::size_t k = 0; k < numbers.gradients.size(); ++k) {
    const std::string& name = numbers.gradients[k].name;
    std::vector<double> values(static_cast<std::size_t>(sizes.at(name)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.4 * std::sin(1.3 * static_cast<double>(k) + 0.71 * static_cast<double>(i));
      if (name.find("layernorm.weight") != std::string::npos) values[i] += 1.0;
    }
    whole[name] = std::move(values);
  }
  EXPECT_EQ(whole.size(), sizes.size());
  return whole;
}

class Pytorch : public ::testing::TestWithParam<std::tuple<bool, std::tuple<int, int, bool>>> {};

TEST_P(Pytorch, Agrees) {
  const bool llama = std::get<0>(GetParam());
  const auto& layout = std::get<1>(GetParam());
  const bool sequence_parallel = std::get<2>(layout);
  const testing::PytorchNumbers& numbers = llama ? testing::kLlama : testing::kGpt;
  const spec::RunSpec run = testing::make_run(
      tiny_model(llama), testing::make_parallel(std::get<0>(layout), std::get<1>(layout), 1, sequence_parallel));
  const WholeTensors parameters = wave_parameters(numbers, run);
  testing::Gatherer gatherer;
  testing::run_mesh(run.parallel, [&](mesh::Rank& rank) {
    auto built = model::build_model(rank, run, DType::float64);
    model::Stage* const stage = &built->chunk(0);
    testing::scatter_parameters(*stage, parameters);
    testing::allocate_gradients(rank.exec, stage->parameters());
    nn::MicroBatch batch = wave_batch();
    testing::place_batch(batch, rank, sequence_parallel);
    const auto losses = testing::run_stage_step(rank, *stage, run, {batch}, {}, DType::float64);
    gatherer.add_gradients(*stage);
    if (rank.mesh.holds_last_stage()) {
      EXPECT_LE(testing::relative_max_error(losses.at(0), numbers.losses), 1e-13);
    }
  });
  double largest = 0;
  for (const auto& gradient : numbers.gradients) largest = std::max(largest, gradient.norm);
  ASSERT_EQ(gatherer.tensors.size(), numbers.gradients.size());
  for (const auto& want : numbers.gradients) {
    const std::vector<double>& gradient = gatherer.tensors.at(want.name);
    double wave = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) wave += gradient[i] * std::cos(0.37 * static_cast<double>(i));
    const double tolerance = 1e-12 * (want.norm + 1e-3 * largest);
    EXPECT_NEAR(testing::norm_of(gradient), want.norm, tolerance) << want.name;
    EXPECT_NEAR(wave, want.wave, tolerance * 10) << want.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Pytorch,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(std::tuple{1, 1, false}, std::tuple{2, 1, false},
                                                              std::tuple{4, 1, true}, std::tuple{2, 2, true})));

// Keys and values kept in a cache give the logits of a pass over the whole text, whatever the pieces.
TEST(Stage, DecodesWithACacheAsInOnePass) {
  for (const bool llama : {false, true})
    for (const int tp : {1, 2}) {
      const spec::RunSpec run = testing::make_run(tiny_model(llama), testing::make_parallel(tp));
      testing::run_mesh(run.parallel, [&](mesh::Rank& rank) {
        auto built = model::build_model(rank, run);
        model::Stage* const stage = &built->chunk(0);
        model::initialize_parameters(rank, stage->parameters(), 3);
        nn::MicroBatch whole = testing::make_batch(1, 0, 1, kLength, kVocab);
        testing::place_batch(whole, rank, false);
        nn::WeightGradQueue queue(rank.exec, nullptr);
        nn::Pass evaluation{rank, rank.exec, whole, nn::Mode::evaluate, false, queue};
        const std::vector<double> want = testing::to_doubles(stage->forward_logits(evaluation, {}, 0, kLength));
        ASSERT_EQ(want.size(), static_cast<std::size_t>(kLength * kVocab));
        nn::KvCache cache;
        cache.capacity = kLength;
        std::vector<double> got;
        for (const auto& [begin, end] : {std::pair{0, 3}, {3, 4}, {4, 6}}) {
          nn::MicroBatch part = testing::meta_batch(1, end - begin);
          part.ids = {whole.ids.begin() + begin, whole.ids.begin() + end};
          part.tokens = whole.tokens.slice(begin, end);
          nn::set_token_shard(part, 0, 1);
          nn::Pass pass{rank, rank.exec, part, begin == 0 ? nn::Mode::prefill : nn::Mode::decode, false, queue};
          pass.kv = &cache;
          const std::vector<double> logits = testing::to_doubles(stage->forward_logits(pass, {}, 0, end - begin));
          got.insert(got.end(), logits.begin(), logits.end());
          cache.length = end;
        }
        EXPECT_EQ(got, want) << "llama " << llama << ", tp " << tp;
        // One row of many: the same bits.
        const std::vector<double> last =
            testing::to_doubles(stage->forward_logits(evaluation, {}, kLength - 1, kLength));
        EXPECT_EQ(last, std::vector<double>(want.end() - kVocab, want.end()));
      });
    }
}

TEST(Stage, RefusesMoreTokensThanTheCacheHolds) {
  const spec::RunSpec run = testing::make_run(tiny_model(true), testing::make_parallel(1));
  testing::run_mesh(run.parallel, [&](mesh::Rank& rank) {
    auto built = model::build_model(rank, run);
    model::Stage* const stage = &built->chunk(0);
    model::initialize_parameters(rank, stage->parameters(), 3);
    nn::MicroBatch batch = testing::make_batch(1, 0, 1, kLength, kVocab);
    testing::place_batch(batch, rank, false);
    nn::WeightGradQueue queue(rank.exec, nullptr);
    nn::Pass pass{rank, rank.exec, batch, nn::Mode::prefill, false, queue};
    nn::KvCache cache;
    cache.capacity = kLength - 1;
    pass.kv = &cache;
    EXPECT_THROW(stage->forward_logits(pass, {}, 0, 1), Error);
  });
}

TEST(Stage, EvaluatesWithoutKeepingAnything) {
  const spec::RunSpec run = testing::make_run(tiny_model(false), testing::make_parallel(2, 1, 1, true));
  testing::run_mesh(run.parallel, [&](mesh::Rank& rank) {
    auto built = model::build_model(rank, run);
    model::Stage* const stage = &built->chunk(0);
    model::initialize_parameters(rank, stage->parameters(), 3);
    testing::allocate_gradients(rank.exec, stage->parameters());
    nn::MicroBatch batch = testing::make_batch(1, 0, 2, kLength, kVocab);
    testing::place_batch(batch, rank, true);
    nn::WeightGradQueue queue(rank.exec, nullptr);
    const auto losses = [&](bool keep, model::StageStash& stash) {
      nn::Pass pass{rank, rank.exec, batch, nn::Mode::train, keep, queue};
      return testing::to_doubles(stage->forward(pass, {}, stash));
    };
    model::StageStash kept, none;
    const std::vector<double> want = losses(true, kept);
    EXPECT_EQ(losses(false, none), want);
    EXPECT_EQ(none.bytes(), 0);
    EXPECT_GT(kept.bytes(), 0);
    const std::int64_t live = rank.exec.allocator().tracker().live(MemoryKind::stash);
    EXPECT_EQ(live, kept.bytes());
    kept = model::StageStash();
    EXPECT_EQ(rank.exec.allocator().tracker().live(MemoryKind::stash), 0);
  });
}

TEST(Stage, RefusesABatchThatIsNotCutForSequenceParallelism) {
  const spec::RunSpec run = testing::make_run(tiny_model(false), testing::make_parallel(2, 1, 1, true));
  EXPECT_THROW(testing::run_mesh(run.parallel,
                                 [&](mesh::Rank& rank) {
                                   auto built = model::build_model(rank, run);
                                   model::Stage* const stage = &built->chunk(0);
                                   model::initialize_parameters(rank, stage->parameters(), 3);
                                   nn::MicroBatch batch = testing::make_batch(1, 0, 2, kLength, kVocab);
                                   testing::place_batch(batch, rank, false);
                                   testing::StepOptions options;
                                   options.backward = false;
                                   testing::run_stage_step(rank, *stage, run, {batch}, options);
                                 }),
               Error);
}

}  // namespace
}  // namespace megatron
