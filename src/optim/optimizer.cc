#include "optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/optimizer_step.h"

namespace megatron::optim {
namespace {

/// The name that the first rank of the model group with a non-empty `name` has, on every rank. Collective.
std::string agree_on_name(mesh::Rank& rank, const std::string& name) {
  const mesh::Group& group = rank.mesh.model;
  if (group.trivial()) return name;
  constexpr std::int64_t kWords = 32;
  Tensor owner = rank.exec.empty(Shape{1}, DType::int64, MemoryKind::communication);
  owner.data<std::int64_t>()[0] = name.empty() ? std::numeric_limits<std::int64_t>::max() : group.rank();
  owner = group.all_reduce(owner, "rank with a bad gradient", comm::ReduceOp::min);
  Tensor text = rank.exec.zeros(Shape{kWords}, DType::int64, MemoryKind::communication);
  auto* bytes = reinterpret_cast<char*>(text.data<std::int64_t>());
  const std::size_t capacity = kWords * sizeof(std::int64_t);
  if (owner.data<std::int64_t>()[0] == group.rank()) std::copy_n(name.data(), std::min(name.size(), capacity), bytes);
  text = group.all_reduce(text, "name of a bad gradient");
  bytes = reinterpret_cast<char*>(text.data<std::int64_t>());
  return std::string(bytes, std::find(bytes, bytes + capacity, '\0'));
}

std::string first_bad_gradient(mesh::Rank& rank, std::span<nn::Parameter* const> parameters) {
  std::string name;
  for (const nn::Parameter* parameter : parameters) {
    if (!parameter->trainable || kernels::all_finite(rank.exec, parameter->main_grad.flat())) continue;
    name = parameter->name;
    break;
  }
  return agree_on_name(rank, name);
}

std::int64_t global_zeros(mesh::Rank& rank, std::span<nn::Parameter* const> parameters) {
  std::int64_t zeros = 0;
  for (const nn::Parameter* parameter : parameters) {
    if (!parameter->trainable || parameter->tied_use) continue;
    for (const spec::Piece& piece : parameter->sharding.pieces)
      if (piece.owned)
        zeros += kernels::count_zeros(
            rank.exec, parameter->main_grad.slice(0, piece.local_row, piece.local_row + piece.global.rows).flat());
  }
  if (rank.mesh.model.trivial()) return zeros;
  Tensor sum = rank.exec.empty(Shape{1}, DType::int64, MemoryKind::communication);
  if (!sum.is_meta()) sum.data<std::int64_t>()[0] = zeros;
  sum = rank.mesh.model.all_reduce(sum, "zeros in the gradient");
  return sum.is_meta() ? zeros : sum.data<std::int64_t>()[0];
}

}  // namespace

Optimizer::Optimizer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, const spec::OptimizerSpec& spec)
    : rank_(rank), parameters_(parameters.begin(), parameters.end()), spec_(spec) {
  std::vector<nn::Parameter*> matrices;
  for (nn::Parameter* parameter : parameters_)
    if (parameter->trainable) owned_.push_back({parameter, 0, parameter->value.numel()});
  for (nn::Parameter* parameter : parameters_) {
    if (!parameter->trainable || nn::shares_table(*parameter, parameters_)) continue;
    Slot slot{parameter, update_rule(spec_, *parameter), {}};
    for (const char* kind : state_kinds(spec_, slot.rule)) slot.states.push_back(add_state(kind, *parameter));
    if (slot.rule == UpdateRule::muon) matrices.push_back(parameter);
    slots_.push_back(std::move(slot));
  }
  if (spec_.kind == spec::OptimizerKind::muon) muon_ = std::make_unique<Muon>(rank_, spec_, matrices);
}

Tensor Optimizer::add_state(const char* kind, nn::Parameter& parameter) {
  Tensor tensor = rank_.exec.zeros(parameter.value.shape(), parameter.value.dtype(), MemoryKind::optimizer);
  states_.push_back({kind, &parameter, tensor});
  return tensor;
}

UpdateResult Optimizer::step(const UpdateInput& input) {
  UpdateResult result;
  MEGATRON_CHECK(std::isfinite(input.token_sum) && input.token_sum >= 0.0, "sum of the loss mask ", input.token_sum);
  MEGATRON_CHECK(std::isfinite(input.loss_scale) && input.loss_scale > 0.0, "loss scale ", input.loss_scale);
  if (input.token_sum == 0.0) {
    result.skipped = true;
    return result;
  }
  // The norm counts every NaN and Inf, so it is the finiteness check as well and costs no second pass.
  const double norm = global_grad_norm(rank_, owned_, false) / input.token_sum / input.loss_scale;
  result.grad_norm = norm;
  if (!std::isfinite(norm)) {
    result.skipped = true;
    result.first_bad_gradient = first_bad_gradient(rank_, parameters_);
    return result;
  }
  if (count_zeros) result.num_zeros = global_zeros(rank_, parameters_);
  const double coefficient = spec_.clip_grad > 0.0 ? clip_coefficient(norm, spec_.clip_grad) : 1.0;
  result.clipped = coefficient < 1.0;
  update(input, coefficient / input.token_sum / input.loss_scale);
  return result;
}

void Optimizer::update(const UpdateInput& input, double grad_scale) {
  ++num_updates_;
  for (Slot& slot : slots_) {
    nn::Parameter& parameter = *slot.parameter;
    const UpdateScalars scalars{input.lr, parameter.decay ? input.weight_decay : 0.0, grad_scale, num_updates_};
    if (slot.rule == UpdateRule::muon) {
      muon_->update(parameter, scalars, parameter.value, parameter.main_grad, slot.states[0]);
      continue;
    }
    std::array<TensorView, 2> states;
    std::array<Tensor, 2> flat;
    for (std::size_t i = 0; i < slot.states.size(); ++i) {
      flat[i] = slot.states[i].flat();
      states[i] = flat[i].view();
    }
    Tensor value = parameter.value.flat();
    update_range(rank_.exec, spec_, slot.rule, scalars, value, parameter.main_grad.flat(), states);
  }
  for (nn::Parameter* parameter : parameters_)
    if (parameter->trainable) ++parameter->version;
}

}  // namespace megatron::optim
