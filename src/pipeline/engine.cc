#include "pipeline/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "kernels/optimizer_step.h"

namespace megatron::pipeline {
namespace {

using schedule::Instruction;
using schedule::Op;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool is_backward(Op op) { return op == Op::backward || op == Op::backward_input || op == Op::backward_weight; }

const char* op_name(Op op) {
  switch (op) {
    case Op::forward:
      return "forward";
    case Op::backward:
      return "backward";
    case Op::backward_input:
      return "input gradient";
    case Op::backward_weight:
      return "weight gradient";
    case Op::send_forward:
      return "send forward";
    case Op::receive_forward:
      return "receive forward";
    case Op::send_backward:
      return "send backward";
    case Op::receive_backward:
      return "receive backward";
  }
  return "?";
}

/// Σ loss·mask, Σ mask and the trained tokens of one micro-batch; true if all trained losses are finite.
template <typename T>
bool add_losses(const T* losses, const std::vector<float>& mask, StepOutput& output) {
  bool finite = true;
  for (std::size_t t = 0; t < mask.size(); ++t) {
    if (mask[t] == 0.0F) continue;
    const auto weight = static_cast<double>(mask[t]);
    const double loss = static_cast<double>(losses[t]);
    finite = finite && std::isfinite(loss);
    output.loss_sum.add(loss * weight);
    output.mask_sum.add(weight);
    ++output.trained_tokens;
  }
  return finite;
}

}  // namespace

/// One step of one rank, while it runs.
class Engine::Step {
 public:
  Step(Engine& engine, std::span<const Instruction> instructions, std::span<const nn::MicroBatch> batches,
       nn::GradSink* sink)
      : engine_(engine),
        instructions_(instructions),
        batches_(batches),
        sink_(sink),
        training_(std::any_of(instructions.begin(), instructions.end(),
                              [](const Instruction& i) { return is_backward(i.op); })),
        weights_apart_(std::any_of(instructions.begin(), instructions.end(),
                                   [](const Instruction& i) { return i.op == Op::backward_weight; })),
        immediate_(engine.rank_.exec, sink),
        forward_inbox_{Op::receive_forward, -1, "hidden state", 0, {}},
        backward_inbox_{Op::receive_backward, 1, "gradient", 0, {}} {}

  StepOutput run(std::int64_t iteration);

 private:
  /// The messages from one neighbour, which come in the order of the instructions that take them.
  struct Inbox {
    Op op;
    int direction;  // −1: from the stage before, 1: from the next
    const char* what;
    std::size_t next_instruction;  // where the search for the next receive to post goes on
    std::deque<std::pair<std::int64_t, comm::Pending<Tensor>>> posted;  // micro-batch, its message
  };

  void execute(const Instruction& instruction);
  void post_next(Inbox& inbox);
  Tensor receive(Inbox& inbox, std::int64_t micro_batch);
  void send(Tensor tensor, int direction, const char* what, std::int64_t micro_batch);
  void drop_completed_sends();
  void wait_for_sends();
  void forward(std::int64_t micro_batch);
  void backward(std::int64_t micro_batch, bool with_weights);
  void backward_weight(std::int64_t micro_batch);
  void take_losses(std::int64_t micro_batch, const Tensor& losses);
  void check_finite(const Tensor& tensor, const char* what, std::int64_t micro_batch);
  nn::Pass make_pass(std::int64_t micro_batch, nn::WeightGradQueue& queue);

  const nn::MicroBatch& batch(std::int64_t micro_batch) const {
    MEGATRON_CHECK(micro_batch >= 0 && micro_batch < std::ssize(batches_), "micro-batch ", micro_batch, " of ",
                   batches_.size());
    return batches_[static_cast<std::size_t>(micro_batch)];
  }
  /// The tensor of `micro_batch`, which leaves the map.
  template <typename T>
  static T take(std::map<std::int64_t, T>& from, std::int64_t micro_batch, const char* what) {
    const auto it = from.find(micro_batch);
    MEGATRON_CHECK(it != from.end(), "no ", what, " of micro-batch ", micro_batch);
    T value = std::move(it->second);
    from.erase(it);
    return value;
  }
  bool is_first() const { return engine_.rank_.mesh.holds_first_stage(); }
  bool is_last() const { return engine_.rank_.mesh.holds_last_stage(); }

  Engine& engine_;
  std::span<const Instruction> instructions_;
  std::span<const nn::MicroBatch> batches_;
  nn::GradSink* sink_;
  bool training_;
  bool weights_apart_;  // some instruction is a W
  nn::WeightGradQueue immediate_;
  std::map<std::int64_t, nn::WeightGradQueue> deferred_;  // between I and W
  Inbox forward_inbox_, backward_inbox_;
  std::deque<comm::Pending<Tensor>> sends_;
  std::map<std::int64_t, Tensor> inputs_, outputs_, d_outputs_, d_inputs_;
  std::map<std::int64_t, model::StageStash> stashes_;
  StepOutput output_;
};

StepOutput Engine::Step::run(std::int64_t iteration) {
  const Clock::time_point start = Clock::now();
  output_.times.instructions.reserve(instructions_.size());
  post_next(forward_inbox_);
  post_next(backward_inbox_);
  for (const Instruction& instruction : instructions_) {
    if (iteration >= 0) engine_.rank_.context.note_progress(to_text(instruction), iteration);
    MEGATRON_CHECK_EQ(instruction.stage, engine_.rank_.mesh.pp.rank(), to_text(instruction),
                      ": the stage of this rank");
    const double begin = seconds_since(start);
    Trace* const trace = engine_.rank_.exec.trace();
    const TraceSpan span(trace, SpanKind::phase, op_name(instruction.op), {},
                         trace != nullptr ? to_text(instruction) : std::string());
    execute(instruction);
    output_.times.instructions.push_back({instruction, begin, seconds_since(start)});
  }
  {
    const TraceSpan span(engine_.rank_.exec.trace(), SpanKind::phase, "complete sends");
    wait_for_sends();
  }
  MEGATRON_CHECK(stashes_.empty() && deferred_.empty() && outputs_.empty() && d_inputs_.empty(),
                 "a step ended with unfinished micro-batches");
  return std::move(output_);
}

void Engine::Step::execute(const Instruction& instruction) {
  const std::int64_t i = instruction.micro_batch;
  const Clock::time_point start = Clock::now();
  StepTimes& times = output_.times;
  drop_completed_sends();
  switch (instruction.op) {
    case Op::forward:
      forward(i);
      times.forward_seconds += seconds_since(start);
      return;
    case Op::backward:
    case Op::backward_input:
      backward(i, instruction.op == Op::backward);
      times.backward_seconds += seconds_since(start);
      return;
    case Op::backward_weight:
      backward_weight(i);
      times.backward_seconds += seconds_since(start);
      return;
    case Op::send_forward:
      return send(take(outputs_, i, "output"), 1, forward_inbox_.what, i);
    case Op::send_backward:
      return send(take(d_inputs_, i, "input gradient"), -1, backward_inbox_.what, i);
    case Op::receive_forward:
      inputs_[i] = receive(forward_inbox_, i);
      times.exposed_communication_seconds += seconds_since(start);
      return;
    case Op::receive_backward:
      d_outputs_[i] = receive(backward_inbox_, i);
      times.exposed_communication_seconds += seconds_since(start);
      return;
  }
}

void Engine::Step::post_next(Inbox& inbox) {
  for (; inbox.next_instruction < instructions_.size(); ++inbox.next_instruction) {
    const Instruction& instruction = instructions_[inbox.next_instruction];
    if (instruction.op != inbox.op) continue;
    ++inbox.next_instruction;
    const mesh::Group& pp = engine_.rank_.mesh.pp;
    MEGATRON_CHECK(pp.communicator() != nullptr, to_text(instruction), " in a pipeline of one stage");
    const std::int64_t i = instruction.micro_batch;
    const std::vector<nn::Parameter*>& parameters = engine_.stage_.parameters();
    const DType dtype = parameters.empty() ? engine_.options_.hidden_dtype : parameters.front()->value.dtype();
    const Shape shape{batch(i).shard_end - batch(i).shard_begin, engine_.run_.model.hidden_size};
    Tensor into = engine_.rank_.exec.empty(shape, dtype, MemoryKind::communication);
    inbox.posted.emplace_back(i, pp.communicator()->receive(std::move(into), pp.rank() + inbox.direction,
                                                            str_cat(inbox.what, " of micro-batch ", i)));
    return;
  }
}

Tensor Engine::Step::receive(Inbox& inbox, std::int64_t micro_batch) {
  MEGATRON_CHECK(!inbox.posted.empty() && inbox.posted.front().first == micro_batch, inbox.what, " of micro-batch ",
                 micro_batch, " was not posted");
  comm::Pending<Tensor> pending = std::move(inbox.posted.front().second);
  inbox.posted.pop_front();
  post_next(inbox);
  return pending.wait();
}

void Engine::Step::send(Tensor tensor, int direction, const char* what, std::int64_t micro_batch) {
  const mesh::Group& pp = engine_.rank_.mesh.pp;
  MEGATRON_CHECK(pp.communicator() != nullptr, "a send in a pipeline of one stage");
  sends_.push_back(pp.communicator()->send(std::move(tensor), pp.rank() + direction,
                                           str_cat(what, " of micro-batch ", micro_batch)));
}

void Engine::Step::drop_completed_sends() {
  while (!sends_.empty() && sends_.front().ready()) {
    sends_.front().wait();
    sends_.pop_front();
  }
}

void Engine::Step::wait_for_sends() {
  const Clock::time_point start = Clock::now();
  for (comm::Pending<Tensor>& pending : sends_) pending.wait();
  sends_.clear();
  output_.times.exposed_communication_seconds += seconds_since(start);
}

nn::Pass Engine::Step::make_pass(std::int64_t micro_batch, nn::WeightGradQueue& queue) {
  nn::Pass pass{engine_.rank_,
                engine_.rank_.exec,
                batch(micro_batch),
                training_ ? nn::Mode::train : nn::Mode::evaluate,
                training_,
                queue,
                engine_.options_.seed,
                engine_.options_.loss_scale,
                weights_apart_};
  pass.parameter_gate = engine_.parameter_gate_;
  if (engine_.hidden_observer_)
    pass.observe_hidden = [this, micro_batch](std::int64_t layer, const Tensor& hidden) {
      engine_.hidden_observer_(micro_batch, layer, hidden);
    };
  return pass;
}

void Engine::Step::forward(std::int64_t micro_batch) {
  Tensor input;
  if (!is_first()) input = take(inputs_, micro_batch, "input");
  nn::Pass pass = make_pass(micro_batch, immediate_);
  model::StageStash stash;
  Tensor result = engine_.stage_.forward(pass, input, stash);
  input.reset();
  if (training_)
    MEGATRON_CHECK(stashes_.emplace(micro_batch, std::move(stash)).second, "micro-batch ", micro_batch, " runs twice");
  if (is_last()) {
    take_losses(micro_batch, result);
  } else {
    check_finite(result, "output", micro_batch);
    outputs_[micro_batch] = std::move(result);
  }
}

void Engine::Step::take_losses(std::int64_t micro_batch, const Tensor& losses) {
  const nn::MicroBatch& b = batch(micro_batch);
  MEGATRON_CHECK_EQ(losses.numel(), b.num_tokens, "losses of micro-batch ", micro_batch);
  if (engine_.loss_observer_) engine_.loss_observer_(micro_batch, losses);
  if (losses.is_meta()) return;
  MEGATRON_CHECK_EQ(std::ssize(b.loss_mask), b.num_tokens, "loss mask of micro-batch ", micro_batch);
  const bool finite = losses.dtype() == DType::float64 ? add_losses(losses.data<double>(), b.loss_mask, output_)
                                                       : add_losses(losses.data<float>(), b.loss_mask, output_);
  if (!finite && engine_.options_.check_for_nan && output_.first_bad_tensor.empty())
    output_.first_bad_tensor = str_cat("loss of micro-batch ", micro_batch);
}

void Engine::Step::check_finite(const Tensor& tensor, const char* what, std::int64_t micro_batch) {
  if (!engine_.options_.check_for_nan || !output_.first_bad_tensor.empty()) return;
  if (kernels::all_finite(engine_.rank_.exec, tensor.flat())) return;
  output_.first_bad_tensor =
      str_cat(what, " of stage ", engine_.rank_.mesh.pp.rank(), " for micro-batch ", micro_batch);
}

void Engine::Step::backward(std::int64_t micro_batch, bool with_weights) {
  nn::WeightGradQueue* queue = &immediate_;
  if (!with_weights) {
    queue = &deferred_.try_emplace(micro_batch, engine_.rank_.exec, sink_).first->second;
    queue->set_deferred(true);
  }
  nn::Pass pass = make_pass(micro_batch, *queue);
  Tensor d_output;
  if (!is_last()) d_output = take(d_outputs_, micro_batch, "gradient");
  Tensor d_input = engine_.stage_.backward(pass, std::move(d_output), take(stashes_, micro_batch, "stash"));
  if (is_first()) return;
  check_finite(d_input, "input gradient", micro_batch);
  d_inputs_[micro_batch] = std::move(d_input);
}

void Engine::Step::backward_weight(std::int64_t micro_batch) {
  const auto it = deferred_.find(micro_batch);
  MEGATRON_CHECK(it != deferred_.end(), "W of micro-batch ", micro_batch, " without its I");
  it->second.drain();
  deferred_.erase(it);
}

Engine::Engine(mesh::Rank& rank, model::Stage& stage, const spec::RunSpec& run, EngineOptions options)
    : rank_(rank), stage_(stage), run_(run), options_(options) {}

StepOutput Engine::run_step(std::span<const Instruction> instructions, std::span<const nn::MicroBatch> batches,
                            nn::GradSink* sink, std::int64_t iteration) {
  for (std::int64_t i = 0; i < std::ssize(batches); ++i)
    MEGATRON_CHECK_EQ(batches[static_cast<std::size_t>(i)].index, i, "micro-batches come in order");
  return Step(*this, instructions, batches, sink).run(iteration);
}

void Engine::set_hidden_observer(std::function<void(std::int64_t, std::int64_t, const Tensor&)> observer) {
  hidden_observer_ = std::move(observer);
}

void Engine::set_loss_observer(std::function<void(std::int64_t, const Tensor&)> observer) {
  loss_observer_ = std::move(observer);
}

}  // namespace megatron::pipeline
