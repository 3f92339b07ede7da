#include "train/reference_run.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/elementwise.h"
#include "pipeline/forward_pass.h"
#include "schedule/training_program.h"
#include "train/batches.h"
#include "train/state_io.h"
#include "train/step_summary.h"

namespace megatron::train {
namespace {

using interop::ReferenceBatch;

/// A batch of a case as a data set of its samples.
class BatchDataset final : public data::Dataset {
 public:
  explicit BatchDataset(const ReferenceBatch& batch) : batch_(batch) {}
  std::int64_t size() const override { return batch_.samples; }
  data::Sample get(std::int64_t index) const override {
    MEGATRON_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
    const auto first = static_cast<std::ptrdiff_t>(index * batch_.seq_length);
    const auto last = first + static_cast<std::ptrdiff_t>(batch_.seq_length);
    data::Sample sample;
    sample.tokens.assign(batch_.ids.begin() + first, batch_.ids.begin() + last);
    sample.labels.assign(batch_.labels.begin() + first, batch_.labels.begin() + last);
    sample.loss_mask.assign(batch_.loss_mask.begin() + first, batch_.loss_mask.begin() + last);
    sample.position_ids.resize(static_cast<std::size_t>(batch_.seq_length));
    std::iota(sample.position_ids.begin(), sample.position_ids.end(), 0);
    sample.sequence_starts = {0, batch_.seq_length};
    return sample;
  }

 private:
  const ReferenceBatch& batch_;
};

/// One sequence as a micro-batch, filled up with tokens that no earlier one can see, so that `multiple` divides it.
nn::MicroBatch one_sequence(const std::vector<std::int64_t>& ids, int multiple, int shard_rank) {
  nn::MicroBatch batch;
  const auto size = static_cast<std::int64_t>(ids.size());
  batch.num_tokens = (size + multiple - 1) / multiple * multiple;
  const auto padded = static_cast<std::size_t>(batch.num_tokens);
  batch.ids = ids;
  batch.ids.resize(padded, 0);
  batch.labels.assign(padded, 0);
  batch.loss_mask.assign(padded, 0.0F);
  batch.sequence_starts = {0, batch.num_tokens};
  batch.tokens.sample_index.assign(padded, 0);
  batch.tokens.position.resize(padded);
  std::iota(batch.tokens.position.begin(), batch.tokens.position.end(), 0);
  nn::set_token_shard(batch, shard_rank, multiple);
  return batch;
}

/// Copies local rows to their places (sample, position) in the batch's table.
void place_rows(const Tensor& rows, const nn::TokenMap& map, std::int64_t seq_length, float* table) {
  const std::int64_t width = rows.numel() / std::max<std::int64_t>(1, rows.size(0));
  MEGATRON_CHECK_EQ(rows.size(0), std::ssize(map.sample_index), "rows of a tensor and of its token map");
  const float* const data = rows.data<float>();
  for (std::int64_t r = 0; r < rows.size(0); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const std::int64_t row = map.sample_index[i] * seq_length + map.place_in_sample()[i];
    std::memcpy(table + row * width, data + r * width, static_cast<std::size_t>(width) * sizeof(float));
  }
}

}  // namespace

ReferenceRun::ReferenceRun(comm::RankContext& context, const spec::RunSpec& run, const interop::HuggingFaceModel& model)
    : run_(run), parts_(context, run, RankParts::Use::training) {
  for (const checkpoint::StateEntry& entry : state_entries(parts_, false)) model.read(entry);
}

bool ReferenceRun::first_of_tp() { return parts_.mesh().tp.rank() == 0; }

Tensor ReferenceRun::zeros(std::int64_t count) {
  return parts_.exec().zeros({count}, DType::float32, MemoryKind::communication);
}

std::vector<float> ReferenceRun::sum_over_world(Tensor values, const std::string& label) {
  if (!parts_.mesh().world.trivial()) values = parts_.mesh().world.all_reduce(std::move(values), label);
  const float* const data = std::as_const(values).data<float>();
  return {data, data + values.numel()};
}

std::vector<nn::MicroBatch> ReferenceRun::micro_batches(const ReferenceBatch& batch) {
  const BatchDataset dataset(batch);
  const data::SequentialOrder order(batch.samples);
  return make_micro_batches(dataset, order, {0, batch.samples, run_.batch.micro_batch_size}, parts_.mesh(),
                            run_.parallel.sequence_parallel);
}

Tensor ReferenceRun::forward_logits(const nn::MicroBatch& batch, std::int64_t begin, std::int64_t end) {
  kernels::Executor& exec = parts_.exec();
  nn::WeightGradQueue queue(exec, nullptr);
  nn::Pass pass{parts_.rank(), exec, batch, nn::Mode::evaluate, false, queue};
  pass.parameter_gate = parts_.parameter_gate();
  return pipeline::forward_logits(pass, parts_.model(), run_, begin, end, "verify.hidden");
}

std::vector<float> ReferenceRun::logits(const ReferenceBatch& batch) {
  Tensor table = zeros(batch.samples * batch.seq_length * run_.model.vocab_size);
  for (const nn::MicroBatch& micro : micro_batches(batch)) {
    const Tensor rows = forward_logits(micro, 0, micro.num_tokens);
    if (rows.defined() && first_of_tp()) place_rows(rows, micro.tokens, batch.seq_length, table.data<float>());
  }
  return sum_over_world(std::move(table), "verify.logits");
}

std::vector<std::int64_t> ReferenceRun::greedy(const std::vector<std::int64_t>& prompt, std::int64_t count) {
  const mesh::Mesh& mesh = parts_.mesh();
  const int multiple = run_.parallel.sequence_parallel ? mesh.tp.size() : 1;
  const int last = mesh.placement.rank_of(mesh.placement.num_stages() - 1);
  std::vector<std::int64_t> text = prompt;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto size = static_cast<std::int64_t>(text.size());
    const nn::MicroBatch batch = one_sequence(text, multiple, multiple > 1 ? mesh.tp.rank() : 0);
    const Tensor row = forward_logits(batch, size - 1, size);
    Tensor token = parts_.exec().zeros({1}, DType::int64, MemoryKind::communication);
    if (row.defined()) {
      const float* const values = row.data<float>();
      token.data<std::int64_t>()[0] = std::max_element(values, values + run_.model.vocab_size) - values;
    }
    if (!mesh.pp.trivial()) token = mesh.pp.communicator()->broadcast(std::move(token), last, "verify.token").wait();
    text.push_back(std::as_const(token).data<std::int64_t>()[0]);
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

ReferenceRun::StepResult ReferenceRun::forward_backward(const ReferenceBatch& batch, Observed* observed) {
  const auto batches = micro_batches(batch);
  const std::int64_t rows = batch.samples * batch.seq_length, layers = run_.model.num_layers;
  std::vector<Tensor> hidden;
  Tensor losses;
  pipeline::Engine& engine = parts_.engine();
  if (observed != nullptr) {
    for (std::int64_t i = 0; i <= layers; ++i) hidden.push_back(zeros(rows * run_.model.hidden_size));
    losses = zeros(rows);
    const bool sharded = run_.parallel.sequence_parallel;
    engine.set_hidden_observer([&, sharded](std::int64_t micro, std::int64_t layer, const Tensor& states) {
      if (sharded || first_of_tp())
        place_rows(states, batches[static_cast<std::size_t>(micro)].shard_tokens, batch.seq_length,
                   hidden[static_cast<std::size_t>(layer)].data<float>());
    });
    engine.set_loss_observer([&](std::int64_t micro, const Tensor& values) {
      if (first_of_tp())
        place_rows(values, batches[static_cast<std::size_t>(micro)].tokens, batch.seq_length, losses.data<float>());
    });
  }
  const auto program = schedule::training_program(run_.parallel, std::ssize(batches));
  parts_.grad_buffer().start_step(std::ssize(batches));
  const pipeline::StepOutput output =
      engine.run_step(program.lists[static_cast<std::size_t>(parts_.mesh().pp.rank())], batches, &parts_.grad_buffer());
  parts_.grad_buffer().finish_step();
  engine.set_hidden_observer(nullptr);
  engine.set_loss_observer(nullptr);
  const StepSummary summary = reduce_summary(parts_.rank(), local_summary(parts_.mesh(), output, 0), "verify.summary");
  StepResult result{summary.loss(), 0.0, summary.token_sum()};
  if (observed == nullptr) return result;
  result.grad_norm =
      optim::global_grad_norm(parts_.rank(), parts_.grad_buffer().owned(), parts_.grad_buffer().sharded()) /
      result.token_sum;
  for (Tensor& states : hidden) observed->hidden.push_back(sum_over_world(std::move(states), "verify.hidden_states"));
  observed->token_losses = sum_over_world(std::move(losses), "verify.token_losses");
  return result;
}

ReferenceRun::StepResult ReferenceRun::train_step(const ReferenceBatch& batch,
                                                  const interop::ReferenceTraining& training) {
  StepResult result = forward_backward(batch, nullptr);
  result.grad_norm = parts_.update({training.lr, training.weight_decay, result.token_sum, 1.0}).grad_norm;
  return result;
}

std::vector<float> ReferenceRun::logical(const std::string& name, std::int64_t elements, What what) {
  Tensor whole = zeros(elements);
  float* const out = whole.data<float>();
  const bool values = what == What::value;
  const std::vector<optim::OwnedPart> held = values ? parts_.held_values() : parts_.grad_buffer().owned();
  const bool shards = values ? parts_.holds_value_shards() : parts_.grad_buffer().sharded();
  for (const optim::OwnedPart& part : held) {
    const optim::ParameterRange& range = part.range;
    const nn::Parameter* const parameter = range.parameter;
    if (parameter->name != name || parameter->tied_use) continue;
    if (!shards && parts_.mesh().dp.rank() != 0) continue;  // all data-parallel ranks have the same: the first gives it
    const spec::Sharding& sharding = parameter->sharding;
    MEGATRON_CHECK_EQ(sharding.numel(), elements, name);
    const Tensor& tensor = values ? part.value : part.gradient;
    const Tensor wide = parts_.exec().zeros(tensor.shape(), DType::float32, MemoryKind::activation);
    kernels::copy(parts_.exec(), tensor, Tensor(wide));
    const float* const local = wide.data<float>();
    for (const spec::FlatPiece& piece : spec::pieces_of_range(sharding, range.begin, range.end)) {
      if (!piece.owned) continue;
      const spec::Box& box = piece.global;
      for (std::int64_t r = 0; r < box.rows; ++r)
        std::memcpy(out + (box.row + r) * sharding.cols + box.col,
                    local + piece.local_begin - range.begin + r * box.cols,
                    static_cast<std::size_t>(box.cols) * sizeof(float));
    }
  }
  return sum_over_world(std::move(whole), "verify." + name);
}

}  // namespace megatron::train
