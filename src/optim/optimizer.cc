#include "optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer_step.h"

namespace megatron::optim {
namespace {

/// The name that the first rank of `group` with a non-empty `name` has, on every rank. Collective.
std::string agree_on_name(mesh::Rank& rank, const mesh::Group& group, const std::string& name) {
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

std::string first_bad_gradient(mesh::Rank& rank, const mesh::Group& group, std::span<const OwnedPart> owned) {
  std::string name;
  for (const OwnedPart& part : owned) {
    if (kernels::all_finite(rank.exec, part.gradient)) continue;
    name = part.range.parameter->name;
    break;
  }
  return agree_on_name(rank, group, name);
}

std::int64_t global_zeros(mesh::Rank& rank, const mesh::Group& group, std::span<const OwnedPart> owned) {
  std::int64_t zeros = 0;
  for (const OwnedPart& part : owned) {
    const ParameterRange& range = part.range;
    if (range.parameter->tied_use) continue;
    for (const spec::FlatPiece& piece : spec::pieces_of_range(range.parameter->sharding, range.begin, range.end))
      if (piece.owned)
        zeros += kernels::count_zeros(
            rank.exec, part.gradient.slice(0, piece.local_begin - range.begin, piece.local_end() - range.begin));
  }
  if (group.trivial()) return zeros;
  Tensor sum = rank.exec.empty(Shape{1}, DType::int64, MemoryKind::communication);
  if (!sum.is_meta()) sum.data<std::int64_t>()[0] = zeros;
  sum = group.all_reduce(sum, "zeros in the gradient");
  return sum.is_meta() ? zeros : sum.data<std::int64_t>()[0];
}

}  // namespace

Optimizer::Optimizer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, const spec::OptimizerSpec& spec)
    : Optimizer(rank, parameters, whole_parts(parameters), false, spec) {}

Optimizer::Optimizer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, std::span<const OwnedPart> owned,
                     bool sharded, const spec::OptimizerSpec& spec)
    : rank_(rank),
      parameters_(parameters.begin(), parameters.end()),
      owned_(owned.begin(), owned.end()),
      sharded_(sharded),
      spec_(spec) {
  std::vector<nn::Parameter*> matrices;
  for (const OwnedPart& part : owned_) {
    const ParameterRange& range = part.range;
    nn::Parameter& parameter = *range.parameter;
    if (nn::shares_table(parameter, parameters_)) continue;
    Slot slot{part, update_rule(spec_, parameter), {}, {}};
    if (is_16_bit_float(parameter.value.dtype()))
      slot.main = add_state("fp32_param", range, MemoryKind::main_parameter);
    for (const char* kind : state_kinds(spec_, slot.rule)) slot.states.push_back(add_state(kind, range));
    if (slot.rule == UpdateRule::muon) {
      MEGATRON_CHECK(range.whole(), parameter.name, ": Muon updates whole matrices, not a part of one");
      matrices.push_back(&parameter);
    }
    slot_of_[&parameter] = slots_.size();
    slots_.push_back(std::move(slot));
  }
  if (spec_.kind == spec::OptimizerKind::muon) muon_ = std::make_unique<Muon>(rank_, spec_, matrices);
}

Tensor Optimizer::add_state(const char* kind, const ParameterRange& range, MemoryKind memory) {
  const Tensor& value = range.parameter->value;
  const Shape shape = range.whole() ? value.shape() : Shape{range.size()};
  Tensor tensor = rank_.exec.zeros(shape, accumulation_dtype(value.dtype()), memory);
  states_.push_back({kind, range, tensor});
  return tensor;
}

void Optimizer::set_main_weight(const nn::Parameter& parameter, const Tensor& values_fp32) {
  const auto found = slot_of_.find(&parameter);
  if (found == slot_of_.end()) return;
  const Slot& slot = slots_[found->second];
  if (slot.main.defined())
    kernels::copy(rank_.exec, values_fp32.flat().slice(0, slot.part.range.begin, slot.part.range.end),
                  slot.main.flat());
}

UpdateDecision Optimizer::decide(const UpdateInput& input, const ExactSum& squares) const {
  UpdateDecision decision;
  MEGATRON_CHECK(std::isfinite(input.token_sum) && input.token_sum >= 0.0, "sum of the loss mask ", input.token_sum);
  MEGATRON_CHECK(std::isfinite(input.backward_scale) && input.backward_scale > 0.0, "backward scale ",
                 input.backward_scale);
  decision.skip = input.token_sum == 0.0;
  if (decision.skip) return decision;
  // The norm counts every NaN and Inf, so it is the finiteness check as well and costs no second pass.
  decision.norm = std::sqrt(squares.value()) / input.token_sum / input.backward_scale;
  decision.skip = !std::isfinite(decision.norm);
  const double coefficient = spec_.clip_grad > 0.0 ? clip_coefficient(decision.norm, spec_.clip_grad) : 1.0;
  decision.clips = coefficient < 1.0;
  decision.scale = coefficient / input.token_sum / input.backward_scale;
  return decision;
}

UpdateResult Optimizer::result_of(const UpdateDecision& decision) {
  UpdateResult result;
  result.grad_norm = decision.norm;
  result.skipped = decision.skip;
  result.clipped = !decision.skip && decision.clips;
  if (decision.skip)
    result.first_bad_gradient = first_bad_gradient(rank_, group(), owned_);
  else if (count_zeros)
    result.num_zeros = global_zeros(rank_, group(), owned_);
  return result;
}

UpdateResult Optimizer::step(const UpdateInput& input) {
  if (input.token_sum == 0.0) {
    UpdateResult result;
    result.skipped = true;
    return result;
  }
  const UpdateDecision decision = decide(input, global_squares(rank_, owned_, sharded_));
  UpdateResult result = result_of(decision);
  if (!decision.skip) apply(input, decision.scale);
  return result;
}

std::vector<Tensor> Optimizer::updated_tensors() const {
  std::vector<Tensor> tensors;
  for (const Slot& slot : slots_) {
    tensors.push_back(slot.main.defined() ? slot.main.flat() : slot.part.value);
    for (const Tensor& state : slot.states) tensors.push_back(state.flat());
  }
  return tensors;
}

void Optimizer::take_back_update() {
  --num_updates_;
  for (Slot& slot : slots_)
    if (slot.main.defined()) kernels::copy(rank_.exec, slot.main.flat(), slot.part.value);
}

void Optimizer::apply(const UpdateInput& input, double grad_scale) {
  ++num_updates_;
  for (Slot& slot : slots_) {
    const double decay = slot.part.range.parameter->decay ? input.weight_decay : 0.0;
    update_slot(slot, {input.lr, decay, grad_scale, num_updates_});
  }
}

void Optimizer::update_slot(Slot& slot, const UpdateScalars& scalars) {
  const nn::Parameter& parameter = *slot.part.range.parameter;
  const Tensor& grad = slot.part.gradient;
  if (slot.rule == UpdateRule::muon) {
    const Shape shape = parameter.value.shape();
    const Tensor value = slot.part.value.reshape(shape), matrix = grad.reshape(shape);
    if (slot.main.defined())
      muon_->update(parameter, scalars, slot.main, matrix, slot.states[0], value);
    else
      muon_->update(parameter, scalars, value, matrix, slot.states[0]);
    return;
  }
  std::array<TensorView, 2> states;
  std::array<Tensor, 2> flat;
  for (std::size_t i = 0; i < slot.states.size(); ++i) {
    flat[i] = slot.states[i].flat();
    states[i] = flat[i].view();
  }
  if (!slot.main.defined())
    return update_range(rank_.exec, spec_, slot.rule, scalars, slot.part.value, grad, states, {});
  Tensor main = slot.main.flat();
  update_range(rank_.exec, spec_, slot.rule, scalars, main, grad, states, slot.part.value);
}

}  // namespace megatron::optim
