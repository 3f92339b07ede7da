// Which rule updates a parameter, what state it keeps, and the update of one flat range: all optimizers that work
// element by element behind one function, so that they run on whole tensors and on shards alike.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/executor.h"
#include "nn/parameter.h"
#include "spec/optimizer_spec.h"

namespace megatron::optim {

enum class UpdateRule : std::uint8_t { adamw, adam_l2, sgd, nesterov, lion, muon };

/// Muon updates matrices that are neither an embedding table nor the head; its scalar optimizer all others.
UpdateRule update_rule(const spec::OptimizerSpec& spec, const nn::Parameter& parameter);
/// All but Muon, which needs whole matrices (muon.h).
constexpr bool is_elementwise(UpdateRule rule) { return rule != UpdateRule::muon; }
/// Names of the rule's state tensors, at most two, in the order in which update_range takes them: exp_avg, exp_avg_sq
/// (Adam), exp_avg (Lion), momentum_buffer (SGD with momentum, Muon).
std::vector<const char*> state_kinds(const spec::OptimizerSpec& spec, UpdateRule rule);

struct UpdateScalars {
  double lr = 0.0;
  double weight_decay = 0.0;    // 0 for parameters without decay
  double grad_scale = 1.0;      // multiplies the gradient: 1/tokens, 1/loss scale, clipping
  std::int64_t num_update = 1;  // of this update, from 1
};

/// Updates `weight` and the states in place from `grad`: flat, dense, of equal length, one floating dtype. Level 0: an
/// element's bits depend on its own operands alone, so ranges may be cut anywhere. `rule` is elementwise. `rounded`
/// (may be null): bfloat16 or float16, becomes the new weight rounded to nearest even.
///
/// AdamW (arXiv 1711.05101): p −= lr·(m̂/(√v̂ + eps) + wd·p). Adam with L2: the decay is added to the gradient first.
///
/// SGD: g += wd·p; buf = momentum·buf + g; p −= lr·buf; Nesterov: p −= lr·(g + momentum·buf).
///
/// Lion (arXiv 2302.06675): p −= lr·(sign(β1·m + (1 − β1)·g) + wd·p); m = β2·m + (1 − β2)·g.
void update_range(kernels::Executor& exec, const spec::OptimizerSpec& spec, UpdateRule rule,
                  const UpdateScalars& scalars, TensorView weight, ConstTensorView grad,
                  const std::array<TensorView, 2>& states, TensorView rounded = {});

}  // namespace megatron::optim
