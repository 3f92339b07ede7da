// Gradients in, new weights out: Megatron's optimizers (update_rule.h, muon.h), clipping by the exact global norm.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "mesh/mesh.h"
#include "nn/parameter.h"
#include "optim/global_norm.h"
#include "optim/muon.h"
#include "optim/update_rule.h"
#include "spec/optimizer_spec.h"

namespace megatron::optim {

struct UpdateInput {
  double lr = 0.0;
  double weight_decay = 0.0;
  /// Σ mask of the step over the global batch; gradients are divided by it once, here. 0: the step is skipped.
  double token_sum = 1.0;
  /// What seeded backward beside the mask (nn::Pass::backward_scale); gradients are divided by it too.
  double backward_scale = 1.0;
};

struct UpdateResult {
  double grad_norm = 0.0;  // of the gradient per token, before clipping; each logical parameter once
  bool clipped = false;
  /// Nothing was changed, not even the number of updates: no trained token, or a non-finite gradient.
  bool skipped = false;
  std::int64_t num_zeros = -1;  // exact zeros among the gradients of all logical parameters, when asked for
  /// A parameter with a non-finite gradient, the same text on every rank that the norm is summed over; empty if there
  /// is none.
  std::string first_bad_gradient;
};

/// What a step comes to once the sum of squares is known.
struct UpdateDecision {
  double norm = 0.0;   // of the gradient per token, before clipping
  double scale = 0.0;  // multiplies the gradient: 1/tokens, 1/loss scale, clipping
  bool clips = false;
  bool skip = false;  // no trained token, or a norm that is not finite
};

/// A named tensor of optimizer state that belongs to what this rank owns of a parameter: exp_avg, exp_avg_sq,
/// momentum_buffer; fp32_param, the main weight, where the parameter's value is of a 16-bit type.
struct OptimizerState {
  std::string kind;
  ParameterRange range;
  Tensor tensor;  // shaped as the parameter's value where the range is all of it, else flat; at least float32
};

class Optimizer {
 public:
  /// `parameters`: all of the rank, `owned` what is updated here of the trainable ones, in the same order (GradBuffer::
  /// owned()); gradients and values stay where they are. `sharded`: data-parallel ranks own different parts. State for
  /// each owned range of a parameter that has its own value (a tied use that shares the table's memory has none; one on
  /// another rank than the table has its own state, in the same bits as the table's). Collective over tp with Muon.
  Optimizer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, std::span<const OwnedPart> owned,
            bool sharded, const spec::OptimizerSpec& spec);
  /// The same with all of `parameters` owned.
  Optimizer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, const spec::OptimizerSpec& spec);

  /// Takes the main weight of a parameter of a 16-bit type from `values_fp32`, shaped as its value; nothing for others.
  void set_main_weight(const nn::Parameter& parameter, const Tensor& values_fp32);

  /// Gradients must be final (reduced over DP, TP, tied uses: see grad_buffer.h) and are left as they are. Collective
  /// over the model group for the norm, over tp with Muon. Updates values in place; division by the tokens, the loss
  /// scale and clipping are one factor of that one pass. wd is 0 for parameters without `decay`.
  UpdateResult step(const UpdateInput& input);

  /// Number of updates done so far (Adam's step); the same on every rank; saved in state.json.
  std::int64_t num_updates() const { return num_updates_; }
  void set_num_updates(std::int64_t n) { num_updates_ = n; }
  std::vector<OptimizerState>& states() { return states_; }
  bool count_zeros = false;

  /// The parts of step(), for updates before the norm of all stages is known (post_validation.h). The sum of this
  /// rank's part, and whether data-parallel ranks have different parts:
  ExactSum local_squares() const { return optim::local_squares(rank_, owned_); }
  bool sharded() const { return sharded_; }
  UpdateDecision decide(const UpdateInput& input, const ExactSum& squares) const;
  /// One update of all that is owned.
  void apply(const UpdateInput& input, double grad_scale);
  /// Counts zeros, or finds the name of a gradient that is not finite. Collective as step().
  UpdateResult result_of(const UpdateDecision& decision);
  /// What an update writes, in a fixed order, but for the 16-bit values that follow from it.
  std::vector<Tensor> updated_tensors() const;
  /// After these were written back as they were before the latest update: 16-bit values and the count follow.
  void take_back_update();

 private:
  struct Slot {
    OwnedPart part;
    UpdateRule rule;
    Tensor main;                 // undefined where the value is the main weight
    std::vector<Tensor> states;  // of update_rule.h's state_kinds
  };
  void update_slot(Slot& slot, const UpdateScalars& scalars);
  Tensor add_state(const char* kind, const ParameterRange& range, MemoryKind memory = MemoryKind::optimizer);
  const mesh::Group& group() const { return sharded_ ? rank_.mesh.world : rank_.mesh.model; }

  mesh::Rank& rank_;
  std::vector<nn::Parameter*> parameters_;
  std::vector<OwnedPart> owned_;  // what is updated here
  bool sharded_;
  spec::OptimizerSpec spec_;
  std::vector<Slot> slots_;  // of what has a value of its own, one of a parameter
  std::unordered_map<const nn::Parameter*, std::size_t> slot_of_;
  std::vector<OptimizerState> states_;  // share the slots' memory
  std::unique_ptr<Muon> muon_;          // where a rule needs it
  std::int64_t num_updates_ = 0;
};

}  // namespace megatron::optim
