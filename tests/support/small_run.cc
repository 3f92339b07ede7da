#include "support/small_run.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"
#include "kernels/elementwise.h"
#include "spec/batch_schedule.h"
#include "spec/layer_split.h"

namespace megatron::testing {
namespace {

class Sequences final : public data::Dataset {
 public:
  Sequences(std::int64_t size, std::int64_t seq_length, std::int64_t vocab,
            std::function<float(std::int64_t, std::int64_t)> mask)
      : size_(size), seq_length_(seq_length), vocab_(vocab), mask_(std::move(mask)) {}
  std::int64_t size() const override { return size_; }
  data::Sample get(std::int64_t index) const override {
    const auto words =
        philox4x32(make_philox_key(7, RandomPurpose::test, 0), {static_cast<std::uint32_t>(index), 0, 0, 0});
    std::vector<std::int64_t> ids = {static_cast<std::int64_t>(words[0]) % vocab_,
                                     static_cast<std::int64_t>(words[1]) % 7 % vocab_};
    while (static_cast<std::int64_t>(ids.size()) <= seq_length_)
      ids.push_back((3 * ids[ids.size() - 1] + ids[ids.size() - 2] % 3 + 1) % vocab_);
    data::Sample sample;
    sample.tokens.assign(ids.begin(), ids.end() - 1);
    sample.labels.assign(ids.begin() + 1, ids.end());
    for (std::int64_t i = 0; i < seq_length_; ++i) {
      sample.position_ids.push_back(i);
      sample.loss_mask.push_back(mask_ ? mask_(index, i) : 1.0F);
    }
    sample.sequence_starts = {0, seq_length_};
    return sample;
  }

 private:
  std::int64_t size_, seq_length_, vocab_;
  std::function<float(std::int64_t, std::int64_t)> mask_;
};

class Collector final : public train::RunListener {
 public:
  explicit Collector(SmallResult& result) : result_(result) {}
  void line(const std::string& text) override { result_.lines.push_back(text); }
  void step(const train::StepReport& report) override { result_.steps.push_back(report); }
  void profile(const train::StepProfile& profile) override { result_.profiles.push_back(profile); }
  void evaluation(const train::EvaluationReport& report) override { result_.evaluations.push_back(report); }

 private:
  SmallResult& result_;
};

void derive_model(spec::ModelSpec& model, int tp) {
  if (model.kv_channels == 0) model.kv_channels = model.hidden_size / model.num_attention_heads;
  if (model.num_query_groups == 0) model.num_query_groups = model.num_attention_heads;
  if (model.ffn_hidden_size == 0)
    model.ffn_hidden_size = model.gated_linear_unit ? model.hidden_size * 8 / 3 / 64 * 64 : 4 * model.hidden_size;
  if (model.max_position_embeddings == 0) model.max_position_embeddings = model.seq_length;
  model.padded_vocab_size = round_up(model.vocab_size, model.make_vocab_size_divisible_by * tp);
}

}  // namespace

std::string layout_text(const Layout& layout) {
  return str_cat("tp", layout.tp, layout.sp ? "+sp" : "", " pp", layout.pp, " dp", layout.dp, " mbs",
                 layout.micro_batch);
}

spec::RunSpec small_run(bool llama) {
  spec::RunSpec run;
  spec::ModelSpec& model = run.model;
  model.num_layers = 2;
  model.hidden_size = 32;
  model.num_attention_heads = 4;
  model.seq_length = 16;
  model.vocab_size = 61;
  model.make_vocab_size_divisible_by = 4;
  model.hidden_dropout = model.attention_dropout = 0.0;
  if (llama) {
    model.normalization = spec::Normalization::rms_norm;
    model.position_embedding = spec::PositionEmbedding::rope;
    model.activation = spec::Activation::silu;
    model.gated_linear_unit = true;
    model.add_bias_linear = false;
    model.untie_embeddings_and_output_weights = true;
    model.num_query_groups = 2;
    model.ffn_hidden_size = 48;
  }
  run.optimizer.lr = 2e-3;
  run.optimizer.lr_decay_style = spec::DecayStyle::constant;
  run.batch.global_batch_size = 8;
  run.batch.train_iters = 3;
  run.batch.eval_iters = 0;
  run.parallel.threads_per_rank = 1;
  run.parallel.distributed_timeout_seconds = 60;
  return run;
}

spec::RunSpec complete(spec::RunSpec run, const Layout& layout) {
  run.parallel.tensor_parallel = layout.tp;
  run.parallel.pipeline_parallel = layout.pp;
  run.parallel.data_parallel = layout.dp;
  run.parallel.world_size = layout.world();
  run.parallel.sequence_parallel = layout.sp && layout.tp > 1;
  run.batch.micro_batch_size = layout.micro_batch;
  run.batch.samples_per_round = layout.micro_batch * layout.dp;
  run.batch.num_micro_batches = spec::BatchSchedule(run.batch).largest(std::nullopt).num_micro_batches;
  MEGATRON_CHECK_EQ(run.batch.num_micro_batches * layout.micro_batch * layout.dp, run.batch.global_batch_size);
  derive_model(run.model, layout.tp);
  spec::LayerSplit split;
  split.num_layers = run.model.num_layers;
  split.pipeline_parallel = layout.pp;
  split.first = run.parallel.decoder_first_pipeline_num_layers;
  split.last = run.parallel.decoder_last_pipeline_num_layers;
  split.chunks = run.parallel.virtual_chunks;
  run.parallel.layers_per_stage =
      spec::layers_per_stage(run.parallel.pipeline_layout ? spec::split_by_layout(*run.parallel.pipeline_layout,
                                                                                  layout.pp, run.model.num_layers, 0)
                                                          : spec::split_layers(split));
  return run;
}

std::shared_ptr<data::Dataset> make_sequences(std::int64_t size, std::int64_t seq_length, std::int64_t vocab,
                                              std::function<float(std::int64_t, std::int64_t)> mask) {
  return std::make_shared<Sequences>(size, seq_length, vocab, std::move(mask));
}

void add_owned_weights(train::RankParts& parts, Weights& into) {
  if (parts.mesh().dp.rank() != 0) return;
  for (const nn::Parameter* parameter : parts.model().parameters()) {
    if (parameter->tied_use) continue;
    const spec::Sharding& sharding = parameter->sharding;
    std::vector<float>& whole = into[parameter->name];
    whole.resize(static_cast<std::size_t>(sharding.numel()), NAN);
    Tensor values = parts.exec().empty(parameter->value.shape(), DType::float32);
    kernels::copy(parts.exec(), parameter->value, values);
    const auto* local = std::as_const(values).data<float>();
    for (const spec::Piece& piece : sharding.pieces)
      for (std::int64_t r = 0; piece.owned && r < piece.global.rows; ++r)
        std::copy_n(local + (piece.local_row + r) * sharding.local_cols, piece.global.cols,
                    whole.begin() + (piece.global.row + r) * sharding.cols + piece.global.col);
  }
}

void set_weights(train::RankParts& parts, const Weights& from) {
  for (nn::Parameter* parameter : parts.model().parameters()) {
    const auto found = from.find(parameter->name);
    if (found == from.end()) continue;
    const spec::Sharding& sharding = parameter->sharding;
    MEGATRON_CHECK_EQ(static_cast<std::int64_t>(found->second.size()), sharding.numel(), parameter->name);
    Tensor values = parts.exec().zeros(parameter->value.shape(), DType::float32, MemoryKind::activation);
    auto* local = values.data<float>();
    for (const spec::Piece& piece : sharding.pieces)
      for (std::int64_t r = 0; r < piece.global.rows; ++r)
        std::copy_n(found->second.begin() + (piece.global.row + r) * sharding.cols + piece.global.col,
                    piece.global.cols, local + (piece.local_row + r) * sharding.local_cols);
    parts.set_weights(*parameter, values);
  }
}

SmallResult train_small(const spec::RunSpec& run, const SmallOptions& options) {
  SmallResult result;
  train::Process process;
  process.run = run;
  process.data.train = options.train;
  process.data.valid = options.valid;
  process.data.test = options.test;
  process.stop_signal = options.stop_signal;

  std::mutex mutex;
  train::TrainHooks hooks = options.hooks;
  hooks.after_setup = [&](train::RankParts& parts) {
    set_weights(parts, options.initial);
    if (options.hooks.after_setup) options.hooks.after_setup(parts);
  };
  hooks.at_end = [&](train::RankParts& parts) {
    if (options.hooks.at_end) options.hooks.at_end(parts);
    const std::lock_guard<std::mutex> lock(mutex);
    add_owned_weights(parts, result.weights);
  };
  comm::WorldOptions world_options;
  world_options.world_size = run.parallel.world_size;
  world_options.timeout_seconds = 60;
  world_options.perturb_seed = options.perturb_seed;
  world_options.print_failure = false;
  if (run.fault.inject_fault.has_value()) world_options.faults = comm::parse_fault_plan(*run.fault.inject_fault);
  std::unique_ptr<comm::World> world = comm::create_local_world(world_options);
  if (options.wrap_world) world = options.wrap_world(std::move(world));
  Collector collector(result);
  result.outcome = train::run_training(*world, process, &collector, hooks);
  return result;
}

double relative_rms(const std::vector<float>& a, const std::vector<float>& b) {
  MEGATRON_CHECK_EQ(a.size(), b.size());
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return size == 0.0 ? std::sqrt(difference / static_cast<double>(a.size())) : std::sqrt(difference / size);
}

}  // namespace megatron::testing
