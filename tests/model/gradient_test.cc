// Gradient checks of whole models in double precision, with biases, dropout, tied tables, at several layouts.
#include <gtest/gtest.h>

#include "support/grad_check.h"
#include "support/stage_fixture.h"

namespace megatron {
namespace {

using testing::WholeTensors;

spec::ModelSpec gpt2_kind() {
  spec::ModelSpec model;
  model.num_layers = 2;
  model.hidden_size = 8;
  model.num_attention_heads = 4;
  model.ffn_hidden_size = 12;
  model.seq_length = 5;
  model.vocab_size = 7;
  model.hidden_dropout = 0.2;
  model.attention_dropout = 0.1;
  return model;
}

spec::ModelSpec llama_kind() {
  spec::ModelSpec model = gpt2_kind();
  model.normalization = spec::Normalization::rms_norm;
  model.position_embedding = spec::PositionEmbedding::rope;
  model.activation = spec::Activation::silu;
  model.gated_linear_unit = true;
  model.add_bias_linear = false;
  model.add_qkv_bias = true;
  model.qk_layernorm = true;
  model.kv_channels = 6;
  model.num_query_groups = 1;
  model.untie_embeddings_and_output_weights = true;
  return model;
}

/// Σ mask·loss of two micro-batches and its gradients.
testing::Evaluation evaluate(const spec::RunSpec& run, const WholeTensors& point, bool with_gradients) {
  testing::Evaluation result;
  testing::Gatherer gatherer;
  std::mutex mutex;
  testing::run_mesh(run.parallel, [&](mesh::Rank& rank) {
    auto built = model::build_model(rank, run, DType::float64);
    model::Stage* const stage = &built->chunk(0);
    testing::scatter_parameters(*stage, point);
    testing::allocate_gradients(rank.exec, stage->parameters());
    std::vector<nn::MicroBatch> batches;
    for (const std::int64_t i : {0, 1}) {
      batches.push_back(testing::make_batch(1, 2 * i, 2, run.model.seq_length, run.model.vocab_size));
      batches.back().index = i;
      testing::place_batch(batches.back(), rank, run.parallel.sequence_parallel);
    }
    testing::StepOptions options;
    options.backward = with_gradients;
    const auto losses = testing::run_stage_step(rank, *stage, run, batches, options, DType::float64);
    if (with_gradients) gatherer.add_gradients(*stage);
    if (!rank.mesh.holds_last_stage() || rank.mesh.tp.rank() != 0) return;
    const std::scoped_lock lock(mutex);
    for (std::size_t i = 0; i < losses.size(); ++i)
      for (std::size_t t = 0; t < losses[i].size(); ++t)
        result.value += losses[i][t] * static_cast<double>(batches[i].loss_mask[t]);
  });
  result.gradients = std::move(gatherer.tensors);
  return result;
}

WholeTensors random_parameters(const spec::RunSpec& run) {
  WholeTensors point;
  testing::run_mesh(testing::make_parallel(1), [&](mesh::Rank& rank) {
    const spec::RunSpec whole = testing::make_run(run.model, testing::make_parallel(1));
    auto built = model::build_model(rank, whole, DType::float64);
    model::Stage* const stage = &built->chunk(0);
    std::uint64_t stream = 50;
    for (const nn::Parameter* p : stage->parameters()) {
      if (p->tied_use) continue;
      point[p->name] = testing::test_values(++stream, p->sharding.numel(), 0.5);
      if (p->init.kind == nn::Initializer::Kind::ones)
        for (double& value : point[p->name]) value += 1.0;
    }
  });
  return point;
}

void check(const spec::ModelSpec& model, int tp, int pp, bool sequence_parallel) {
  SCOPED_TRACE(str_cat("tp ", tp, ", pp ", pp, sequence_parallel ? ", sequence parallel" : ""));
  const spec::RunSpec run = testing::make_run(model, testing::make_parallel(tp, pp, 1, sequence_parallel));
  testing::grad_check([&](const WholeTensors& there, bool with) { return evaluate(run, there, with); },
                      random_parameters(run), 5e-7);
}

TEST(ModelGradient, OfGpt2Kind) {
  check(gpt2_kind(), 1, 1, false);
  check(gpt2_kind(), 2, 1, false);
  check(gpt2_kind(), 2, 2, true);
}

TEST(ModelGradient, OfLlamaKind) {
  check(llama_kind(), 1, 1, false);
  check(llama_kind(), 4, 1, false);
  check(llama_kind(), 2, 2, true);
}

}  // namespace
}  // namespace megatron
