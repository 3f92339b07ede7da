#include "optim/update_rule.h"

#include <cmath>

#include "base/check.h"
#include "kernels/optimizer_step.h"
#include "kernels/optimizer_variants.h"

namespace megatron::optim {
namespace {

bool starts_with(const std::string& name, std::string_view prefix) { return name.rfind(prefix, 0) == 0; }

bool is_table_or_head(const nn::Parameter& parameter) {
  return parameter.tied_use || starts_with(parameter.name, "embedding.") ||
         starts_with(parameter.name, "output_layer.");
}

kernels::AdamStep adam_step(const spec::OptimizerSpec& spec, const UpdateScalars& scalars) {
  const auto t = static_cast<double>(scalars.num_update);
  return {scalars.lr,
          spec.adam_beta1,
          spec.adam_beta2,
          spec.adam_eps,
          scalars.weight_decay,
          1.0 - std::pow(spec.adam_beta1, t),
          1.0 - std::pow(spec.adam_beta2, t),
          scalars.grad_scale};
}

}  // namespace

UpdateRule update_rule(const spec::OptimizerSpec& spec, const nn::Parameter& parameter) {
  spec::OptimizerKind kind = spec.kind;
  if (kind == spec::OptimizerKind::muon) {
    if (parameter.sharding.num_dims == 2 && !is_table_or_head(parameter)) return UpdateRule::muon;
    kind = spec.muon.scalar_optimizer;
  }
  switch (kind) {
    case spec::OptimizerKind::sgd:
      return spec.sgd_nesterov ? UpdateRule::nesterov : UpdateRule::sgd;
    case spec::OptimizerKind::lion:
      return UpdateRule::lion;
    default:
      return spec.decoupled_weight_decay ? UpdateRule::adamw : UpdateRule::adam_l2;
  }
}

std::vector<const char*> state_kinds(const spec::OptimizerSpec& spec, UpdateRule rule) {
  switch (rule) {
    case UpdateRule::adamw:
    case UpdateRule::adam_l2:
      return {"exp_avg", "exp_avg_sq"};
    case UpdateRule::lion:
      return {"exp_avg"};
    case UpdateRule::sgd:
      if (spec.sgd_momentum == 0.0) return {};
      break;
    case UpdateRule::nesterov:
    case UpdateRule::muon:
      break;
  }
  return {"momentum_buffer"};
}

void update_range(kernels::Executor& exec, const spec::OptimizerSpec& spec, UpdateRule rule,
                  const UpdateScalars& scalars, TensorView weight, ConstTensorView grad,
                  const std::array<TensorView, 2>& states, TensorView rounded) {
  const double lr = scalars.lr, decay = scalars.weight_decay, scale = scalars.grad_scale;
  const bool first = scalars.num_update == 1;
  switch (rule) {
    case UpdateRule::adamw:
      return kernels::adamw_step(exec, adam_step(spec, scalars), weight, grad, states[0], states[1], rounded);
    case UpdateRule::adam_l2:
      return kernels::adam_l2_step(exec, adam_step(spec, scalars), weight, grad, states[0], states[1], rounded);
    case UpdateRule::sgd:
      return kernels::sgd_step(exec, lr, spec.sgd_momentum, decay, scale, first, weight, grad, states[0], rounded);
    case UpdateRule::nesterov:
      return kernels::sgd_nesterov_step(exec, {lr, spec.sgd_momentum, decay, scale, first}, weight, grad, states[0],
                                        rounded);
    case UpdateRule::lion:
      return kernels::lion_step(exec, {lr, spec.lion_beta1, spec.lion_beta2, decay, scale}, weight, grad, states[0],
                                rounded);
    case UpdateRule::muon:
      break;
  }
  MEGATRON_CHECK(is_elementwise(rule), "Muon updates whole matrices, not ranges of ", weight.numel(), " elements");
}

}  // namespace megatron::optim
