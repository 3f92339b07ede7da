// What one rank computes for a verification: passes over given batches, with the results of all ranks put together.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "interop/huggingface.h"
#include "interop/reference_case.h"
#include "train/assemble.h"

namespace megatron::train {

/// Every function is collective over the world and returns the same on every rank.
class ReferenceRun {
 public:
  /// Fills the weights from `model`.
  ReferenceRun(comm::RankContext& context, const spec::RunSpec& run, const interop::HuggingFaceModel& model);

  /// Logits of all rows of the batch [samples·length, vocabulary], without loss and gradient.
  std::vector<float> logits(const interop::ReferenceBatch& batch);
  /// The `count` tokens that follow `prompt` when each time the likeliest is taken (the lowest id of equals).
  std::vector<std::int64_t> greedy(const std::vector<std::int64_t>& prompt, std::int64_t count);

  struct StepResult {
    double loss = 0;       // Σ loss·mask ÷ Σ mask
    double grad_norm = 0;  // of the gradient per token
    double token_sum = 0;  // Σ mask
  };
  struct Observed {
    std::vector<float> token_losses;         // [samples·length]
    std::vector<std::vector<float>> hidden;  // [layers + 1][samples·length·hidden size]
  };
  /// Forward and backward; the gradients stay in the buffer. Observes if `observed` is not null.
  StepResult forward_backward(const interop::ReferenceBatch& batch, Observed* observed);
  /// One training step: forward_backward and the update.
  StepResult train_step(const interop::ReferenceBatch& batch, const interop::ReferenceTraining& training);

  enum class What : std::uint8_t { value, gradient };
  /// A whole logical tensor of `elements` elements; gradients are Σ over tokens, not yet divided.
  std::vector<float> logical(const std::string& name, std::int64_t elements, What what);

  bool is_main() const { return parts_.is_main(); }

 private:
  std::vector<nn::MicroBatch> micro_batches(const interop::ReferenceBatch& batch);
  /// Brings a micro-batch through all stages; on the last stage the logits of rows [begin, end), elsewhere nothing.
  Tensor forward_logits(const nn::MicroBatch& batch, std::int64_t begin, std::int64_t end);
  std::vector<float> sum_over_world(Tensor values, const std::string& label);
  Tensor zeros(std::int64_t count);
  /// True on the rank that speaks for its tensor-parallel group.
  bool first_of_tp();

  const spec::RunSpec& run_;
  RankParts parts_;
};

}  // namespace megatron::train
