#include "pipeline/engine.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "kernels/optimizer_step.h"

namespace megatron::pipeline {
namespace {

using schedule::Instruction;
using schedule::Op;

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
        placement_(engine.model_.placement()),
        instructions_(instructions),
        batches_(batches),
        sink_(sink),
        training_(std::any_of(instructions_.begin(), instructions_.end(),
                              [](const Instruction& i) { return is_backward(i.op); })),
        weights_apart_(std::any_of(instructions_.begin(), instructions_.end(),
                                   [](const Instruction& i) { return i.op == Op::backward_weight; })),
        immediate_(engine.rank_.exec, sink) {
    make_inboxes();
  }

  /// The next instructions, up to the one numbered `end`.
  void run_to(std::size_t end, std::int64_t iteration);
  StepOutput finish();
  /// Forgets what was done, once no message is under way.
  void abandon() { wait_for_sends(); }

 private:
  /// One micro-batch on one virtual stage.
  struct Place {
    int stage;
    std::int64_t micro_batch;
    bool operator<(const Place& other) const {
      return std::tie(stage, micro_batch) < std::tie(other.stage, other.micro_batch);
    }
    bool operator==(const Place& other) const = default;
  };
  /// A hidden state or a gradient on its way to the place that needs it.
  struct Message {
    bool forward;
    Place to;
    bool operator<(const Message& other) const { return std::tie(forward, to) < std::tie(other.forward, other.to); }
    bool operator==(const Message& other) const = default;
  };
  /// What one rank sends to this one, in the order in which it sends and this rank receives.
  struct Inbox {
    std::vector<Message> expected;
    std::vector<std::size_t> needed_by;  // number of the instruction that receives it
    std::size_t next = 0;                // the next of them to be posted
    bool waiting = false;                // one is posted
    comm::Pending<Tensor> posted;
  };

  void execute(const Instruction& instruction);
  void make_inboxes();
  int sender_of(const Message& message) const {
    return placement_.rank_of(message.to.stage + (message.forward ? -1 : 1));
  }
  void post_next(int peer, Inbox& inbox);
  Tensor receive(const Message& message);
  void send(Tensor tensor, const Message& message);
  /// Brings a stage's result to the stage that needs it if this rank holds that one too, else keeps it for its send.
  void hand_over(Tensor tensor, const Message& message);
  std::string text_of(const Message& message) const;
  void drop_completed_sends();
  void wait_for_sends();
  void forward(const Place& place);
  void backward(const Place& place, bool with_weights);
  void backward_weight(const Place& place);
  void count_stash(Op op);
  void take_losses(std::int64_t micro_batch, const Tensor& losses);
  void check_finite(const Tensor& tensor, const char* what, const Place& place);
  nn::Pass make_pass(std::int64_t micro_batch, nn::WeightGradQueue& queue);

  const nn::MicroBatch& batch(std::int64_t micro_batch) const {
    MEGATRON_CHECK(micro_batch >= 0 && micro_batch < std::ssize(batches_), "micro-batch ", micro_batch, " of ",
                   batches_.size());
    return batches_[static_cast<std::size_t>(micro_batch)];
  }
  /// The value at `key`, which leaves the map.
  template <typename K, typename T>
  static T take(std::map<K, T>& from, const K& key, const char* what, const Place& place) {
    const auto it = from.find(key);
    MEGATRON_CHECK(it != from.end(), "no ", what, " of micro-batch ", place.micro_batch, " on stage ", place.stage);
    T value = std::move(it->second);
    from.erase(it);
    return value;
  }
  bool is_last(int stage) const { return stage + 1 == placement_.num_stages(); }

  Engine& engine_;
  const spec::StagePlacement placement_;
  std::span<const Instruction> instructions_;
  std::span<const nn::MicroBatch> batches_;
  nn::GradSink* sink_;
  bool training_;
  bool weights_apart_;  // some instruction is a W
  nn::WeightGradQueue immediate_;
  std::map<Place, nn::WeightGradQueue> deferred_;  // between I and W
  std::map<int, Inbox> inboxes_;                   // by sender
  std::deque<comm::Pending<Tensor>> sends_;
  std::map<Message, Tensor> arrived_, leaving_;  // inputs of passes to come; results that wait for their send
  std::map<Place, model::StageStash> stashes_;
  std::int64_t live_stashes_ = 0;
  const Clock::time_point start_ = Clock::now();
  std::size_t at_ = 0, end_ = 0;  // the next instruction; where the part that runs now ends
  StepOutput output_;
};

void Engine::Step::run_to(std::size_t end, std::int64_t iteration) {
  const Clock::time_point start = start_;
  output_.times.instructions.reserve(instructions_.size());
  end_ = end;
  for (auto& [peer, inbox] : inboxes_)
    if (!inbox.waiting) post_next(peer, inbox);
  for (; at_ < end; ++at_) {
    const Instruction& instruction = instructions_[at_];
    if (iteration >= 0) engine_.rank_.context.note_progress(to_text(instruction), iteration);
    const double begin = seconds_since(start);
    Trace* const trace = engine_.rank_.exec.trace();
    const TraceSpan span(trace, SpanKind::phase, op_name(instruction.op), {},
                         trace != nullptr ? to_text(instruction) : std::string());
    execute(instruction);
    output_.times.instructions.push_back({instruction, begin, seconds_since(start)});
  }
}

StepOutput Engine::Step::finish() {
  {
    const TraceSpan span(engine_.rank_.exec.trace(), SpanKind::phase, "complete sends");
    wait_for_sends();
  }
  MEGATRON_CHECK(stashes_.empty() && deferred_.empty() && arrived_.empty() && leaving_.empty(),
                 "a step ended with unfinished micro-batches");
  return std::move(output_);
}

void Engine::Step::execute(const Instruction& instruction) {
  const Place place{instruction.stage, instruction.micro_batch};
  const Clock::time_point start = Clock::now();
  StepTimes& times = output_.times;
  drop_completed_sends();
  switch (instruction.op) {
    case Op::forward:
      forward(place);
      times.forward_seconds += seconds_since(start);
      break;
    case Op::backward:
    case Op::backward_input:
      backward(place, instruction.op == Op::backward);
      times.backward_seconds += seconds_since(start);
      break;
    case Op::backward_weight:
      backward_weight(place);
      times.backward_seconds += seconds_since(start);
      break;
    case Op::send_forward:
    case Op::send_backward: {
      const bool forwards = instruction.op == Op::send_forward;
      const Message message{forwards, {place.stage + (forwards ? 1 : -1), place.micro_batch}};
      return send(take(leaving_, message, "result", place), message);
    }
    case Op::receive_forward:
    case Op::receive_backward: {
      const Message message{instruction.op == Op::receive_forward, place};
      arrived_[message] = receive(message);
      times.exposed_communication_seconds += seconds_since(start);
      return;
    }
  }
  count_stash(instruction.op);
}

/// A stash counts from its F to the end of its B or W.
void Engine::Step::count_stash(Op op) {
  if (!training_) return;
  if (op == Op::forward) output_.peak_chunk_stashes = std::max(output_.peak_chunk_stashes, ++live_stashes_);
  if (op == Op::backward || op == Op::backward_weight) --live_stashes_;
}

void Engine::Step::make_inboxes() {
  for (std::size_t at = 0; at < instructions_.size(); ++at) {
    const Instruction& i = instructions_[at];
    if (!schedule::is_receive(i.op)) continue;
    const Message message{i.op == Op::receive_forward, {i.stage, i.micro_batch}};
    const int peer = sender_of(message);
    MEGATRON_CHECK(peer != engine_.rank_.mesh.pp.rank() && engine_.rank_.mesh.pp.communicator() != nullptr, to_text(i),
                   " is from a stage on the same rank");
    inboxes_[peer].expected.push_back(message);
    inboxes_[peer].needed_by.push_back(at);
  }
}

std::string Engine::Step::text_of(const Message& message) const {
  return str_cat(message.forward ? "hidden state" : "gradient", " of micro-batch ", message.to.micro_batch,
                 placement_.num_chunks > 1 ? str_cat(" for stage ", message.to.stage) : "");
}

void Engine::Step::post_next(int peer, Inbox& inbox) {
  if (inbox.next == inbox.expected.size() || inbox.needed_by[inbox.next] >= end_) return;
  inbox.waiting = true;
  const Message& message = inbox.expected[inbox.next++];
  const nn::MicroBatch& micro = batch(message.to.micro_batch);
  const Shape shape{micro.shard_end - micro.shard_begin, engine_.run_.model.hidden_size};
  Tensor into = engine_.rank_.exec.empty(shape, engine_.options_.hidden_dtype, MemoryKind::communication);
  inbox.posted = engine_.rank_.mesh.pp.communicator()->receive(std::move(into), peer, text_of(message));
}

Tensor Engine::Step::receive(const Message& message) {
  const int peer = sender_of(message);
  Inbox& inbox = inboxes_.at(peer);
  MEGATRON_CHECK(inbox.next > 0 && inbox.expected[inbox.next - 1] == message, text_of(message), " was not posted");
  comm::Pending<Tensor> pending = std::move(inbox.posted);
  inbox.waiting = false;
  post_next(peer, inbox);
  return pending.wait();
}

void Engine::Step::send(Tensor tensor, const Message& message) {
  const mesh::Group& pp = engine_.rank_.mesh.pp;
  MEGATRON_CHECK(pp.communicator() != nullptr, "a send in a pipeline of one rank");
  sends_.push_back(pp.communicator()->send(std::move(tensor), placement_.rank_of(message.to.stage), text_of(message)));
}

void Engine::Step::hand_over(Tensor tensor, const Message& message) {
  (engine_.model_.holds(message.to.stage) ? arrived_ : leaving_)[message] = std::move(tensor);
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
                engine_.options_.backward_scale,
                weights_apart_};
  pass.parameter_gate = engine_.parameter_gate_;
  if (engine_.hidden_observer_)
    pass.observe_hidden = [this, micro_batch](std::int64_t layer, const Tensor& hidden) {
      engine_.hidden_observer_(micro_batch, layer, hidden);
    };
  return pass;
}

void Engine::Step::forward(const Place& place) {
  Tensor input;
  if (place.stage > 0) input = take(arrived_, Message{true, place}, "input", place);
  nn::Pass pass = make_pass(place.micro_batch, immediate_);
  model::StageStash stash;
  Tensor result = engine_.model_.stage(place.stage).forward(pass, input, stash);
  input.reset();
  if (training_)
    MEGATRON_CHECK(stashes_.emplace(place, std::move(stash)).second, "micro-batch ", place.micro_batch,
                   " runs twice on stage ", place.stage);
  if (is_last(place.stage)) return take_losses(place.micro_batch, result);
  check_finite(result, "output", place);
  hand_over(std::move(result), {true, {place.stage + 1, place.micro_batch}});
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

void Engine::Step::check_finite(const Tensor& tensor, const char* what, const Place& place) {
  if (!engine_.options_.check_for_nan || !output_.first_bad_tensor.empty()) return;
  if (kernels::all_finite(engine_.rank_.exec, tensor.flat())) return;
  output_.first_bad_tensor = str_cat(what, " of stage ", place.stage, " for micro-batch ", place.micro_batch);
}

void Engine::Step::backward(const Place& place, bool with_weights) {
  nn::WeightGradQueue* queue = &immediate_;
  if (!with_weights) {
    queue = &deferred_.try_emplace(place, engine_.rank_.exec, sink_).first->second;
    queue->set_deferred(true);
  }
  nn::Pass pass = make_pass(place.micro_batch, *queue);
  Tensor d_output;
  if (!is_last(place.stage)) d_output = take(arrived_, Message{false, place}, "gradient", place);
  Tensor d_input =
      engine_.model_.stage(place.stage).backward(pass, std::move(d_output), take(stashes_, place, "stash", place));
  if (place.stage == 0) return;
  if (engine_.options_.check_gradients) check_finite(d_input, "input gradient", place);
  hand_over(std::move(d_input), {false, {place.stage - 1, place.micro_batch}});
}

void Engine::Step::backward_weight(const Place& place) {
  const auto it = deferred_.find(place);
  MEGATRON_CHECK(it != deferred_.end(), "W of micro-batch ", place.micro_batch, " on stage ", place.stage,
                 " without its I");
  it->second.drain();
  deferred_.erase(it);
}

Engine::Engine(mesh::Rank& rank, model::Model& model, const spec::RunSpec& run, EngineOptions options)
    : rank_(rank), model_(model), run_(run), options_(options) {}

StepOutput Engine::run_step(std::span<const Instruction> instructions, std::span<const nn::MicroBatch> batches,
                            nn::GradSink* sink, std::int64_t iteration, const Interruption* interruption) {
  for (std::int64_t i = 0; i < std::ssize(batches); ++i)
    MEGATRON_CHECK_EQ(batches[static_cast<std::size_t>(i)].index, i, "micro-batches come in order");
  std::optional<Step> step;
  step.emplace(*this, instructions, batches, sink);
  if (interruption != nullptr) {
    step->run_to(interruption->count, iteration);
    const Interruption::Verdict verdict = interruption->settle();
    if (verdict != Interruption::Verdict::go_on) step->abandon();
    if (verdict == Interruption::Verdict::abandon) return {};
    if (verdict == Interruption::Verdict::start_again) step.emplace(*this, instructions, batches, sink);
  }
  step->run_to(instructions.size(), iteration);
  StepOutput output = step->finish();
  latest_times_ = output.times;
  return output;
}

void Engine::set_hidden_observer(std::function<void(std::int64_t, std::int64_t, const Tensor&)> observer) {
  hidden_observer_ = std::move(observer);
}

void Engine::set_loss_observer(std::function<void(std::int64_t, const Tensor&)> observer) {
  loss_observer_ = std::move(observer);
}

}  // namespace megatron::pipeline
