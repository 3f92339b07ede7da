// Gradients in, new weights out: AdamW and SGD with Megatron's rules, clipping by the exact global norm.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mesh/mesh.h"
#include "nn/parameter.h"
#include "spec/optimizer_spec.h"

namespace megatron::optim {

struct UpdateInput {
  double lr = 0.0;
  double weight_decay = 0.0;
  /// Σ mask of the step over the global batch; gradients are divided by it once, here. 0: the step is skipped.
  double token_sum = 1.0;
  double loss_scale = 1.0;
};

struct UpdateResult {
  double grad_norm = 0.0;  // of the gradient per token, before clipping; each logical parameter once
  bool clipped = false;
  bool skipped = false;
  std::int64_t num_zeros = -1;  // when asked for
  /// First parameter with a non-finite gradient, empty if none. The optimizer has then touched nothing.
  std::string first_bad_gradient;
};

/// A named tensor of optimizer state that belongs to a parameter: exp_avg, exp_avg_sq, momentum_buffer.
struct OptimizerState {
  std::string kind;
  nn::Parameter* parameter;
  Tensor tensor;
};

class Optimizer {
 public:
  /// State for each trainable parameter that has its own value (a tied use that shares the table's memory has none).
  Optimizer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, const spec::OptimizerSpec& spec);

  /// main_grad of all parameters must be final (reduced over DP, TP, tied uses: see grad_buffer.h). Collective over the model
  /// group for the norm. Updates values in place and raises their version.
  UpdateResult step(const UpdateInput& input);

  /// Number of updates done so far (Adam's step); the same on every rank; saved in state.json.
  std::int64_t num_updates() const { return num_updates_; }
  void set_num_updates(std::int64_t n) { num_updates_ = n; }
  std::vector<OptimizerState>& states() { return states_; }
  bool count_zeros = false;

 private:
  mesh::Rank& rank_;
  std::vector<nn::Parameter*> parameters_;
  spec::OptimizerSpec spec_;
  std::vector<OptimizerState> states_;
  std::int64_t num_updates_ = 0;
};

/// √Σ g² over all logical parameters of the model group (owned pieces only, tied uses not), exact (ExactSum): the same for
/// every layout that has the same gradients. Collective.
double global_grad_norm(mesh::Rank& rank, std::span<nn::Parameter* const> parameters);

}  // namespace megatron::optim
