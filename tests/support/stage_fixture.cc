#include "support/stage_fixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/units.h"
#include "kernels/elementwise.h"

namespace megatron::testing {

spec::RunSpec make_run(spec::ModelSpec model, const spec::ParallelSpec& parallel, std::int64_t divisible) {
  if (model.kv_channels == 0) model.kv_channels = model.hidden_size / model.num_attention_heads;
  if (model.num_query_groups == 0) model.num_query_groups = model.num_attention_heads;
  if (model.ffn_hidden_size == 0) model.ffn_hidden_size = 4 * model.hidden_size;
  if (model.max_position_embeddings == 0) model.max_position_embeddings = model.seq_length;
  if (model.padded_vocab_size == 0)
    model.padded_vocab_size = round_up(model.vocab_size, divisible * parallel.tensor_parallel);
  spec::RunSpec run;
  run.model = model;
  run.parallel = parallel;
  const std::int64_t stages = parallel.placement().num_stages();
  for (std::int64_t s = 0; s < stages; ++s)
    run.parallel.layers_per_stage.push_back(model.num_layers / stages + (s < model.num_layers % stages ? 1 : 0));
  return run;
}

namespace {

double element(const Tensor& tensor, std::int64_t index) {
  return tensor.dtype() == DType::float64 ? tensor.data<double>()[index]
                                          : static_cast<double>(tensor.data<float>()[index]);
}

void set_element(Tensor& tensor, std::int64_t index, double value) {
  if (tensor.dtype() == DType::float64)
    tensor.data<double>()[index] = value;
  else
    tensor.data<float>()[index] = static_cast<float>(value);
}

/// Calls f(local index, logical index, piece) for each element that a piece covers.
template <typename F>
void for_each_element(const spec::Sharding& sharding, F&& f) {
  for (const spec::Piece& piece : sharding.pieces)
    for (std::int64_t r = 0; r < piece.global.rows; ++r)
      for (std::int64_t c = 0; c < piece.global.cols; ++c)
        f((piece.local_row + r) * sharding.local_cols + c,
          (piece.global.row + r) * sharding.cols + piece.global.col + c, piece);
}

}  // namespace

std::vector<double> to_doubles(const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  MEGATRON_CHECK(tensor.is_contiguous());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(tensor, static_cast<std::int64_t>(i));
  return values;
}

double relative_max_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double error = 0, scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    error = std::max(error, difference);
    scale = std::max(scale, std::abs(b[i]));
  }
  return scale == 0 ? error : error / scale;
}

void scatter_into(nn::Parameter& parameter, const std::vector<double>& whole) {
  MEGATRON_CHECK_EQ(static_cast<std::int64_t>(whole.size()), parameter.sharding.numel(), parameter.name);
  for (std::int64_t i = 0; i < parameter.value.numel(); ++i) set_element(parameter.value, i, 0.0);
  for_each_element(parameter.sharding, [&](std::int64_t local, std::int64_t logical, const spec::Piece&) {
    set_element(parameter.value, local, whole[static_cast<std::size_t>(logical)]);
  });
}

void scatter_parameters(model::Stage& stage, const WholeTensors& whole) {
  for (nn::Parameter* parameter : stage.parameters())
    if (const auto it = whole.find(parameter->name); it != whole.end()) scatter_into(*parameter, it->second);
}

void Gatherer::add(const nn::Parameter& parameter, const Tensor& tensor, bool all_pieces) {
  const std::scoped_lock lock(mutex_);
  std::vector<double>& whole = tensors[parameter.name];
  whole.resize(static_cast<std::size_t>(parameter.sharding.numel()));
  for_each_element(parameter.sharding, [&](std::int64_t local, std::int64_t logical, const spec::Piece& piece) {
    if (piece.owned || all_pieces) whole[static_cast<std::size_t>(logical)] += element(tensor, local);
  });
}

void Gatherer::add_values(const nn::Parameter& parameter) { add(parameter, parameter.value, false); }

void Gatherer::add_values(model::Stage& stage) {
  for (const nn::Parameter* parameter : stage.parameters())
    if (!parameter->tied_use) add_values(*parameter);
}

void Gatherer::add_gradient(const nn::Parameter& parameter) {
  add(parameter, parameter.main_grad, parameter.grad_reduction != nn::GradReduction::none);
}

void Gatherer::add_gradients(model::Stage& stage) {
  for (const nn::Parameter* parameter : stage.parameters()) add_gradient(*parameter);
}

void allocate_gradients(kernels::Executor& exec, const std::vector<nn::Parameter*>& parameters) {
  for (nn::Parameter* parameter : parameters)
    parameter->main_grad = exec.zeros(parameter->value.shape(), parameter->value.dtype(), MemoryKind::gradient);
}

nn::MicroBatch meta_batch(std::int64_t count, std::int64_t length) {
  nn::MicroBatch batch;
  batch.num_tokens = count * length;
  for (std::int64_t i = 0; i <= count; ++i) batch.sequence_starts.push_back(i * length);
  return batch;
}

nn::MicroBatch make_batch(std::uint64_t seed, std::int64_t first_sample, std::int64_t count, std::int64_t length,
                          std::int64_t vocab) {
  nn::MicroBatch batch = meta_batch(count, length);
  const PhiloxKey key = make_philox_key(seed, RandomPurpose::test, 0);
  for (std::int64_t s = 0; s < count; ++s)
    for (std::int64_t p = 0; p < length; ++p) {
      const auto sample = static_cast<std::uint32_t>(first_sample + s);
      const auto word = philox4x32(key, {sample, static_cast<std::uint32_t>(p), 0, 0});
      batch.ids.push_back(static_cast<std::int64_t>(word[0] % static_cast<std::uint32_t>(vocab)));
      batch.labels.push_back(static_cast<std::int64_t>(word[1] % static_cast<std::uint32_t>(vocab)));
      batch.loss_mask.push_back(static_cast<float>(word[2] % 4) * 0.5F);
      batch.tokens.sample_index.push_back(first_sample + s);
      batch.tokens.position.push_back(p);
    }
  return batch;
}

void place_batch(nn::MicroBatch& batch, const mesh::Rank& rank, bool sequence_parallel) {
  const mesh::Group& tp = rank.mesh.tp;
  nn::set_token_shard(batch, sequence_parallel ? tp.rank() : 0, sequence_parallel ? tp.size() : 1);
}

namespace {

struct Flow {
  mesh::Rank& rank;
  model::Stage& stage;
  const spec::RunSpec& run;
  const StepOptions& options;
  DType dtype;
  nn::WeightGradQueue queue;

  nn::Pass pass(const nn::MicroBatch& batch) {
    nn::Pass p{rank, rank.exec, batch, options.mode, options.backward, queue};
    p.seed = options.seed;
    if (options.observe_hidden)
      p.observe_hidden = [this, index = batch.index](std::int64_t layer, const Tensor& hidden) {
        options.observe_hidden(index, layer, hidden);
      };
    return p;
  }
  Tensor receive(const nn::MicroBatch& batch, int from, const char* label) {
    Tensor into =
        rank.exec.empty({batch.shard_end - batch.shard_begin, run.model.hidden_size}, dtype, MemoryKind::communication);
    return rank.mesh.pp.communicator()->receive(into, from, label).wait();
  }
  Tensor forward(const nn::MicroBatch& batch, model::StageStash& stash) {
    const mesh::Group& pp = rank.mesh.pp;
    Tensor input;
    if (!rank.mesh.holds_first_stage()) input = receive(batch, pp.rank() - 1, "forward");
    nn::Pass p = pass(batch);
    Tensor output = stage.forward(p, input, stash);
    if (rank.mesh.holds_last_stage()) return output;
    pp.communicator()->send(output, pp.rank() + 1, "forward").wait();
    return Tensor();
  }
  void backward(const nn::MicroBatch& batch, model::StageStash&& stash) {
    const mesh::Group& pp = rank.mesh.pp;
    Tensor d_output;
    if (!rank.mesh.holds_last_stage()) d_output = receive(batch, pp.rank() + 1, "backward");
    nn::Pass p = pass(batch);
    Tensor d_input = stage.backward(p, std::move(d_output), std::move(stash));
    if (!rank.mesh.holds_first_stage()) pp.communicator()->send(d_input, pp.rank() - 1, "backward").wait();
  }
};

}  // namespace

std::vector<std::vector<double>> run_stage_step(mesh::Rank& rank, model::Stage& stage, const spec::RunSpec& run,
                                                const std::vector<nn::MicroBatch>& batches, const StepOptions& options,
                                                DType dtype) {
  Flow flow = {rank, stage, run, options, dtype, nn::WeightGradQueue(rank.exec, options.sink)};
  flow.queue.set_deferred(options.deferred_weight_grads);
  std::vector<model::StageStash> stashes(batches.size());
  std::vector<std::vector<double>> losses;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Tensor loss = flow.forward(batches[i], stashes[i]);
    if (loss.defined() && !loss.is_meta()) losses.push_back(to_doubles(loss));
  }
  for (std::size_t i = 0; options.backward && i < batches.size(); ++i) flow.backward(batches[i], std::move(stashes[i]));
  flow.queue.drain();
  return losses;
}

}  // namespace megatron::testing
