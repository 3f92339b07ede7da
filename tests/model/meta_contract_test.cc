// The formulas of spec/block_shape.h against the layers themselves, run on meta tensors in the null world, for
// generated models and layouts: parameters, FLOPs, bytes kept for backward and until W, the peaks of each pass, bytes
// on the wire; in float32 and 16-bit types. Exact integers.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

#include "spec/block_shape.h"
#include "spec/pass_memory.h"
#include "support/run_ranks.h"
#include "support/stage_fixture.h"

namespace megatron {
namespace {

/// A small deterministic source of choices.
class Choice {
 public:
  explicit Choice(std::uint64_t seed) : key_(make_philox_key(seed, RandomPurpose::test, 2)) {}
  std::uint32_t below(std::uint32_t n) { return philox4x32(key_, {count_++, 0, 0, 0})[0] % n; }
  bool coin() { return below(2) == 1; }
  template <typename T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::uint32_t>(values.size()))];
  }

 private:
  PhiloxKey key_;
  std::uint32_t count_ = 0;
};

constexpr std::uint64_t kPlainScenarios = 250, kFloat32Scenarios = kPlainScenarios + 220,
                        kScenarios = kFloat32Scenarios + 240;

struct Scenario {
  spec::RunSpec run;
  std::vector<std::int64_t> lengths;  // of the sequences of a micro-batch
  std::int64_t tokens = 0;
  bool weights_apart = false;  // as zero-bubble schedules ask for
  bool deferred = false;       // backward is an I, and a W follows

  spec::ElementBytes bytes() const {
    return {dtype_size(run.numerics.params_dtype), dtype_size(run.numerics.residual_dtype())};
  }
};

std::int64_t fitting_groups(Choice& choice, int tp) {
  for (;;) {
    const std::int64_t groups = choice.of<std::int64_t>({1, 2, 3, 4, 6, 8, 12, 24});
    if (groups % tp == 0 || tp % groups == 0) return groups;
  }
}

spec::ModelSpec generated_model(Choice& choice, int tp) {
  spec::ModelSpec model;
  model.num_layers = choice.of<std::int64_t>({4, 5, 6, 8});
  model.hidden_size = choice.of<std::int64_t>({24, 32, 40, 64});
  model.num_attention_heads = 24;
  model.num_query_groups = fitting_groups(choice, tp);
  model.kv_channels = choice.of<std::int64_t>({2, 4, 8});
  model.ffn_hidden_size = choice.of<std::int64_t>({48, 96, 240});
  model.vocab_size = choice.of<std::int64_t>({37, 61, 130, 1000});
  model.normalization = choice.of({spec::Normalization::layer_norm, spec::Normalization::rms_norm});
  model.position_embedding = choice.of(
      {spec::PositionEmbedding::learned_absolute, spec::PositionEmbedding::rope, spec::PositionEmbedding::none});
  model.gated_linear_unit = choice.coin();
  model.activation = model.gated_linear_unit ? spec::Activation::silu : spec::Activation::gelu_tanh;
  model.add_bias_linear = choice.coin();
  model.add_qkv_bias = choice.coin();
  model.qk_layernorm = choice.coin();
  model.untie_embeddings_and_output_weights = choice.coin();
  model.hidden_dropout = choice.coin() ? 0.1 : 0.0;
  model.attention_dropout = choice.coin() ? 0.1 : 0.0;
  return model;
}

Scenario generate(std::uint64_t seed) {
  Choice choice(seed);
  const int tp = choice.of({1, 2, 3, 4, 8}), pp = choice.of({1, 2, 4}), dp = choice.of({1, 2});
  spec::ModelSpec model = generated_model(choice, tp);
  Scenario scenario;
  // 24 tokens and multiples of it divide by every TP; sequences of unequal length are packed documents.
  const std::int64_t samples = choice.of<std::int64_t>({1, 2, 3});
  model.seq_length = choice.of<std::int64_t>({24, 48, 816});  // the last: more than a tile of the head
  for (std::int64_t s = 0; s < samples; ++s) {
    const std::int64_t cut = choice.coin() ? 5 : 0;
    if (cut > 0) scenario.lengths.push_back(cut);
    scenario.lengths.push_back(model.seq_length - cut);
  }
  scenario.tokens = samples * model.seq_length;
  scenario.run =
      testing::make_run(model, testing::make_parallel(tp, pp, dp, choice.coin()), choice.of<std::int64_t>({1, 8, 128}));
  // The later scenarios drop activations.
  if (seed >= kPlainScenarios) {
    spec::RecomputeSpec& r = scenario.run.recompute;
    const bool full = choice.coin();
    r.granularity = full ? spec::RecomputeGranularity::full : spec::RecomputeGranularity::selective;
    r.method = choice.coin() ? spec::RecomputeMethod::uniform : spec::RecomputeMethod::block;
    r.num_layers = choice.of<std::int64_t>({1, 2, 3});
    r.modules = {choice.coin(), choice.coin(), choice.coin()};
    r.distribute_saved_activations = full && tp > 1 && !scenario.run.parallel.sequence_parallel && choice.coin();
    scenario.weights_apart = choice.coin();
    scenario.deferred = scenario.weights_apart && choice.of({false, true, true});
  }
  if (seed >= kFloat32Scenarios) {
    scenario.run.numerics.params_dtype = choice.of({DType::bfloat16, DType::float16});
    scenario.run.numerics.fp32_residual_connection = choice.coin();
  }
  return scenario;
}

struct Counted {
  std::int64_t parameters = 0, stash_bytes = 0, live_stash_bytes = 0;
  kernels::WorkCounters forward, both;
  spec::Traffic forward_traffic, both_traffic;
  std::int64_t sent = 0;  // over pp, forward and backward
  std::int64_t kept_for_weights = 0;
  spec::StagePasses::Peak forward_peak, backward_peak;
  bool operator==(const Counted& other) const {
    return parameters == other.parameters && stash_bytes == other.stash_bytes &&
           live_stash_bytes == other.live_stash_bytes && forward.matmul_flops == other.forward.matmul_flops &&
           both.matmul_flops == other.both.matmul_flops && forward.attention_flops == other.forward.attention_flops &&
           both.attention_flops == other.both.attention_flops && forward.bytes_moved == other.forward.bytes_moved &&
           both.bytes_moved == other.both.bytes_moved && forward_traffic == other.forward_traffic &&
           both_traffic == other.both_traffic && sent == other.sent;
  }
};

spec::Traffic tp_traffic(const comm::TrafficCounters& counters) {
  spec::Traffic traffic;
  const auto group = counters.bytes.find("tp");
  if (group == counters.bytes.end()) return traffic;
  for (const auto& [operation, bytes] : group->second) {
    if (operation == "all_reduce")
      traffic.all_reduce = bytes;
    else if (operation == "all_gather")
      traffic.all_gather = bytes;
    else if (operation == "reduce_scatter")
      traffic.reduce_scatter = bytes;
    else
      ADD_FAILURE() << "unexpected operation over tp: " << operation;
  }
  return traffic;
}

std::int64_t memory_of(const std::vector<nn::Parameter*>& parameters) {
  std::int64_t count = 0;
  std::vector<const tensor::Storage*> seen;
  for (const nn::Parameter* p : parameters) {
    const tensor::Storage* storage = p->value.storage().get();
    if (std::find(seen.begin(), seen.end(), storage) == seen.end()) count += p->value.numel();
    seen.push_back(storage);
  }
  return count;
}

nn::MicroBatch batch_of(const Scenario& scenario, bool meta) {
  nn::MicroBatch batch = meta ? testing::meta_batch(1, scenario.tokens)
                              : testing::make_batch(1, 0, 1, scenario.tokens, scenario.run.model.vocab_size);
  batch.sequence_starts = {0};
  std::int64_t row = 0;
  for (const std::int64_t length : scenario.lengths) {
    for (std::int64_t p = 0; p < length && !meta; ++p) batch.tokens.position[static_cast<std::size_t>(row + p)] = p;
    batch.sequence_starts.push_back(row += length);
  }
  return batch;
}

void allocate_gradients(kernels::Executor& exec, const std::vector<nn::Parameter*>& parameters) {
  for (nn::Parameter* p : parameters)
    p->main_grad = exec.zeros(p->value.shape(), accumulation_dtype(p->value.dtype()), MemoryKind::gradient);
}

spec::StagePasses::Peak peaks(const tensor::MemoryTracker& tracker) {
  return {tracker.peak_of_passes(), tracker.peak(MemoryKind::communication)};
}

/// Forward and backward of one micro-batch on this rank, with everything counted.
Counted count(mesh::Rank& rank, const Scenario& scenario) {
  const spec::RunSpec& run = scenario.run;
  const bool meta = rank.exec.is_meta();
  Counted counted;
  auto built = model::build_model(rank, run);
  model::Stage* const stage = &built->chunk(0);
  if (!meta) model::initialize_parameters(rank, stage->parameters(), 1);
  counted.parameters = memory_of(stage->parameters());
  allocate_gradients(rank.exec, stage->parameters());
  nn::MicroBatch batch = batch_of(scenario, meta);
  testing::place_batch(batch, rank, run.parallel.sequence_parallel);
  rank.exec.counters() = {};
  nn::WeightGradQueue queue(rank.exec, nullptr);
  nn::Pass pass{rank, rank.exec, batch, nn::Mode::train, true, queue};
  pass.weights_apart = scenario.weights_apart;
  const mesh::Group& pp = rank.mesh.pp;
  const Shape hidden = {batch.shard_end - batch.shard_begin, run.model.hidden_size};
  const auto receive = [&](int from) {
    Tensor into = rank.exec.empty(hidden, run.numerics.residual_dtype(), MemoryKind::communication);
    return pp.communicator()->receive(std::move(into), from, "hidden").wait();
  };
  tensor::MemoryTracker& tracker = rank.exec.allocator().tracker();
  queue.set_deferred(scenario.deferred);
  tracker.restart_peaks();
  model::StageStash stash;
  {
    Tensor input, output;
    if (!rank.mesh.holds_first_stage()) input = receive(pp.rank() - 1);
    output = stage->forward(pass, input, stash);
    if (!rank.mesh.holds_last_stage()) pp.communicator()->send(output, pp.rank() + 1, "hidden").wait();
  }
  counted.stash_bytes = stash.bytes();
  counted.live_stash_bytes = tracker.live(MemoryKind::stash);
  counted.forward_peak = peaks(tracker);
  counted.forward = rank.exec.counters();
  counted.forward_traffic = tp_traffic(rank.context.traffic());
  Tensor gradient;
  if (!rank.mesh.holds_last_stage()) gradient = receive(pp.rank() + 1);
  tracker.restart_peaks();
  gradient = stage->backward(pass, std::move(gradient), std::move(stash));
  counted.backward_peak = peaks(tracker);
  counted.kept_for_weights = tracker.live(MemoryKind::stash);
  queue.drain();
  if (!rank.mesh.holds_first_stage()) pp.communicator()->send(gradient, pp.rank() - 1, "hidden").wait();
  counted.both = rank.exec.counters();
  counted.both_traffic = tp_traffic(rank.context.traffic());
  for (const auto& [operation, bytes] : rank.context.traffic().bytes["pp"]) counted.sent += bytes;
  EXPECT_EQ(tracker.live(MemoryKind::stash), 0) << "bytes that backward left behind";
  return counted;
}

void expect_peaks(const spec::StagePasses::Peak& counted, const spec::StagePasses::Peak& described, const char* pass) {
  EXPECT_EQ(counted.activations, described.activations) << "activations of " << pass;
  EXPECT_EQ(counted.communication, described.communication) << "communication of " << pass;
}

void expect_formulas(const Counted& counted, const Scenario& scenario, const mesh::Mesh& mesh) {
  const spec::RunSpec& run = scenario.run;
  const bool first = mesh.holds_first_stage(), last = mesh.holds_last_stage();
  const spec::StageShape shape = spec::stage_shape(
      run.model, {run.parallel.tensor_parallel, run.parallel.sequence_parallel},
      run.parallel.layers_per_stage[static_cast<std::size_t>(mesh.pp.rank())], first, last, run.recompute);
  const std::int64_t tokens = scenario.tokens;
  EXPECT_EQ(counted.parameters, shape.parameters());
  // The head forms its weight gradient in forward, unless that is put off.
  const std::int64_t put_off = last && scenario.weights_apart ? shape.head.linear().forward_flops(tokens) : 0;
  EXPECT_EQ(counted.forward.matmul_flops, shape.forward_matmul_flops(tokens) - put_off);
  EXPECT_EQ(counted.both.matmul_flops, shape.forward_matmul_flops(tokens) + shape.backward_matmul_flops(tokens));
  const std::int64_t core = shape.layers * shape.block.attention.core_flops(scenario.lengths);
  EXPECT_EQ(counted.forward.attention_flops, core);
  const std::int64_t again = shape.recomputed_attentions() * shape.block.attention.core_flops(scenario.lengths);
  EXPECT_EQ(counted.both.attention_flops, 3 * core + again);
  EXPECT_EQ(counted.both.recomputed_flops, shape.recomputed_matmul_flops(tokens) + again);
  const spec::ElementBytes bytes = scenario.bytes();
  EXPECT_EQ(counted.stash_bytes, shape.stash_bytes(tokens, bytes, scenario.weights_apart));
  EXPECT_EQ(counted.live_stash_bytes, counted.stash_bytes) << "the memory table and the visitor";
  EXPECT_EQ(counted.forward_traffic, shape.forward_traffic(tokens, bytes));
  EXPECT_EQ(counted.both_traffic, shape.forward_traffic(tokens, bytes) + shape.backward_traffic(tokens, bytes));
  const std::int64_t messages = (first ? 0 : 1) + (last ? 0 : 1);
  EXPECT_EQ(counted.sent, messages * bytes.stream * shape.block.layout.token_rows(tokens) * run.model.hidden_size);
  const spec::PassSetting setting{tokens, bytes, run.model.hidden_dropout > 0.0, scenario.weights_apart};
  const spec::StagePasses passes = spec::stage_passes(shape, setting, {});
  EXPECT_EQ(passes.stash, counted.stash_bytes);
  expect_peaks(counted.forward_peak, passes.forward, "forward");
  expect_peaks(counted.backward_peak, scenario.deferred ? passes.input_backward : passes.backward, "backward");
  EXPECT_EQ(counted.kept_for_weights, scenario.deferred ? passes.kept_for_weights : 0);
}

std::string describe(std::uint64_t seed, const Scenario& s, int rank) {
  const spec::ParallelSpec& p = s.run.parallel;
  return str_cat("scenario ", seed, ": recompute ", static_cast<int>(s.run.recompute.granularity), ", tp ",
                 p.tensor_parallel, ", pp ", p.pipeline_parallel, ", dp ", p.data_parallel, ", sequence parallel ",
                 p.sequence_parallel, ", groups ", s.run.model.num_query_groups, ", weights apart ", s.weights_apart,
                 ", deferred ", s.deferred, ", bytes ", s.bytes().value, "/", s.bytes().stream, ", rank ", rank);
}

TEST(MetaContract, FormulasEqualWhatRuns) {
  for (std::uint64_t seed = 0; seed < kScenarios; ++seed) {
    const Scenario scenario = generate(seed);
    const int world = scenario.run.parallel.world_size, tp = scenario.run.parallel.tensor_parallel;
    // Every stage, at its first and last tensor-parallel rank.
    for (int rank = 0; rank < world; ++rank) {
      if (rank % tp != 0 && rank % tp != tp - 1) continue;
      SCOPED_TRACE(describe(seed, scenario, rank));
      testing::run_meta(scenario.run.parallel, rank,
                        [&](mesh::Rank& r) { expect_formulas(count(r, scenario), scenario, r.mesh); });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// Parameters of the whole model, counted from the model's description alone.
std::int64_t logical_parameters(const spec::ModelSpec& m) {
  const std::int64_t h = m.hidden_size, norms = m.normalization == spec::Normalization::layer_norm ? 2 : 1;
  std::int64_t layer = 2 * norms * h;
  layer += m.qkv_rows() * (h + (m.has_qkv_bias() ? 1 : 0));
  layer += h * (m.attention_width() + (m.add_bias_linear ? 1 : 0));
  layer += m.fc1_rows() * (h + (m.add_bias_linear ? 1 : 0));
  layer += h * (m.ffn_hidden_size + (m.add_bias_linear ? 1 : 0));
  if (m.qk_layernorm) layer += 2 * norms * m.kv_channels;
  std::int64_t total = m.num_layers * layer + norms * h + m.vocab_size * h;
  if (m.position_embedding == spec::PositionEmbedding::learned_absolute) total += m.max_position_embeddings * h;
  return total + (m.tied() ? 0 : m.vocab_size * h);
}

TEST(MetaContract, OwnedPiecesAddUpToTheModel) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Scenario scenario = generate(seed);
    const spec::ParallelSpec& parallel = scenario.run.parallel;
    std::int64_t owned = 0;
    for (int rank = 0; rank < parallel.world_size; ++rank)
      testing::run_meta(parallel, rank, [&](mesh::Rank& r) {
        if (r.mesh.dp.rank() != 0) return;
        auto built = model::build_model(r, scenario.run);
        model::Stage* const stage = &built->chunk(0);
        for (const nn::Parameter* p : stage->parameters())
          for (const spec::Piece& piece : p->sharding.pieces)
            if (piece.owned && !p->tied_use) owned += piece.global.numel();
      });
    EXPECT_EQ(owned, logical_parameters(scenario.run.model)) << describe(seed, scenario, 0);
  }
}

// What meta tensors count is what real tensors count.
TEST(MetaContract, MetaCountsWhatRealRunsDo) {
  int compared = 0;
  for (std::uint64_t seed = 0; compared < 12; ++seed) {
    const Scenario scenario = generate(seed);
    const int world = scenario.run.parallel.world_size;
    if (world > 8) continue;
    ++compared;
    std::vector<Counted> real(static_cast<std::size_t>(world));
    testing::run_mesh(scenario.run.parallel, [&](mesh::Rank& rank) {
      real[static_cast<std::size_t>(rank.mesh.rank)] = count(rank, scenario);
    });
    for (int rank = 0; rank < world; ++rank)
      testing::run_meta(scenario.run.parallel, rank, [&](mesh::Rank& r) {
        const Counted meta = count(r, scenario), &run = real[static_cast<std::size_t>(rank)];
        EXPECT_EQ(meta, run) << describe(seed, scenario, rank);
        // What a collective holds may go a little earlier: the last rank to come finds it done.
        EXPECT_LE(run.forward_peak.activations, meta.forward_peak.activations) << describe(seed, scenario, rank);
        EXPECT_LE(run.backward_peak.activations, meta.backward_peak.activations) << describe(seed, scenario, rank);
        EXPECT_GE(run.forward_peak.activations, run.stash_bytes);
      });
  }
}

}  // namespace
}  // namespace megatron
