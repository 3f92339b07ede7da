// Runs the instruction list of this rank for one step: one loop, one switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/exact_sum.h"
#include "model/model.h"
#include "nn/hooks.h"
#include "schedule/instruction.h"

namespace megatron::pipeline {

/// When an instruction ran, in seconds since the step began.
struct InstructionTime {
  schedule::Instruction instruction;
  double begin_seconds = 0, end_seconds = 0;
};

struct StepTimes {
  double forward_seconds = 0, backward_seconds = 0;
  double exposed_communication_seconds = 0;  // waiting for messages of other stages
  std::vector<InstructionTime> instructions;
};

struct StepOutput {
  /// Last stage: Σ loss·mask over the micro-batches, exact; a token with mask 0 contributes nothing, whatever its loss.
  ExactSum loss_sum;
  /// Last stage: Σ mask, and the number of tokens with mask ≠ 0.
  ExactSum mask_sum;
  std::int64_t trained_tokens = 0;
  StepTimes times;
  /// Most stashes of one micro-batch on one virtual stage that were alive at one time: from F to the end of B or W.
  std::int64_t peak_chunk_stashes = 0;
  /// First non-finite tensor met on this rank (loss, a stage's output or input gradient), empty if none: "loss of
  /// micro-batch 3", "output of stage 1 for micro-batch 2", "input gradient of stage 1 for micro-batch 0".
  std::string first_bad_tensor;
};

/// What the caller must settle while a step runs: the step before. The first `count` instructions (see
/// schedule::repeatable_front) run before, the others after.
struct Interruption {
  enum class Verdict : std::uint8_t { go_on, start_again, abandon };
  std::size_t count = 0;
  /// start_again: weights have changed; what was done is forgotten and done again. abandon: the step is forgotten.
  std::function<Verdict()> settle;
};

struct EngineOptions {
  std::uint64_t seed = 1234;
  bool check_for_nan = true;
  bool check_gradients = true;  // of what passes between stages too; float16 overflows by design
  double backward_scale = 1.0;
  /// Of the hidden state between stages.
  DType hidden_dtype = DType::float32;
};

/// From each rank that sends to this one, one receive is posted ahead, from the start of the step on, in the order of
/// the list (schedule::insert_communication makes it the order of the sender's sends). Sends never wait; a stage hands
/// over to the next on the same rank without a message; a stash is freed by its backward pass; all sends have completed
/// when a step ends. On meta tensors the same happens without values.
class Engine {
 public:
  Engine(mesh::Rank& rank, model::Model& model, const spec::RunSpec& run, EngineOptions options);

  /// Executes `instructions`, this rank's list of a valid program (communication inserted) of the model's placement.
  /// batches[i].index == i. `sink` may be null in evaluation. Instructions without any backward run as evaluation:
  /// nothing is stashed, no dropout. A non-finite tensor does not end the step: all stages run to its end and the
  /// caller decides (StepOutput::first_bad_tensor). `iteration` ≥ 0: each instruction is told to the rank's context
  /// ("2F0") with that number. `interruption` may be null; its verdict is the same on all ranks. Collective over pp and
  /// tp.
  StepOutput run_step(std::span<const schedule::Instruction> instructions, std::span<const nn::MicroBatch> batches,
                      nn::GradSink* sink, std::int64_t iteration = -1, const Interruption* interruption = nullptr);
  /// Of the latest step.
  const StepTimes& latest_times() const { return latest_times_; }
  /// Multiplies what seeds backward, in all later steps.
  void set_backward_scale(double scale) { options_.backward_scale = scale; }
  /// See nn::Pass::observe_hidden; kept for all later steps.
  void set_hidden_observer(std::function<void(std::int64_t micro_batch, std::int64_t layer, const Tensor&)> observer);
  /// See nn::Pass::parameter_gate; kept for all later steps, may be null.
  void set_parameter_gate(nn::ParameterGate* gate) { parameter_gate_ = gate; }
  /// Last stage: sees the per-token losses of each micro-batch [T].
  void set_loss_observer(std::function<void(std::int64_t micro_batch, const Tensor&)> observer);

 private:
  class Step;

  mesh::Rank& rank_;
  model::Model& model_;
  const spec::RunSpec& run_;
  EngineOptions options_;
  StepTimes latest_times_;
  nn::ParameterGate* parameter_gate_ = nullptr;
  std::function<void(std::int64_t, std::int64_t, const Tensor&)> hidden_observer_;
  std::function<void(std::int64_t, const Tensor&)> loss_observer_;
};

}  // namespace megatron::pipeline
