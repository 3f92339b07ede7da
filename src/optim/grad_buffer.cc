#include "optim/grad_buffer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/units.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer_step.h"
#include "optim/micro_batch_reduction.h"
#include "optim/step_reduction.h"

namespace megatron::optim {
namespace {

std::int64_t default_bucket_size(const mesh::Rank& rank) {
  return std::max<std::int64_t>(40'000'000, 1'000'000LL * rank.mesh.dp.size());
}

/// Which rows of a linear_qkv are key and value, where fewer groups than ranks exist (spec::qkv_shard): the last piece.
struct SharedRows {
  std::int64_t local_row = 0, rows = 0;  // in this rank's shard
  std::int64_t group = 0, groups = 0;
};

SharedRows shared_rows(const nn::Parameter& parameter, int tp_size) {
  const spec::Sharding& s = parameter.sharding;
  MEGATRON_CHECK_EQ(s.pieces.size(), 2U, "query rows and shared rows of ", parameter.name);
  const spec::Piece& shared = s.pieces.back();
  SharedRows result;
  result.local_row = shared.local_row;
  result.rows = shared.global.rows;
  // The logical rows are all query rows and one set of shared rows per group.
  const std::int64_t shared_total = s.rows - s.pieces.front().global.rows * tp_size;
  result.groups = shared_total / result.rows;
  MEGATRON_CHECK(result.groups > 0 && shared_total % result.rows == 0 && s.rows % result.groups == 0, "rows of ",
                 parameter.name, " do not split into groups");
  result.group = shared.global.row / (s.rows / result.groups);
  return result;
}

FlatLayoutOptions layout_options(const mesh::Rank& rank, const GradBufferOptions& options, bool sharded) {
  FlatLayoutOptions layout;
  layout.bucket_size = options.bucket_size.value_or(default_bucket_size(rank));
  layout.shards = sharded ? rank.mesh.dp.size() : 1;
  layout.indivisible = options.indivisible;
  layout.within_groups = options.every_micro_batch && !rank.mesh.dp.trivial();
  return layout;
}

}  // namespace

GradBuffer::GradBuffer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, const GradBufferOptions& options)
    : rank_(rank),
      sharded_(options.sharded && !rank.mesh.dp.trivial()),
      layout_(parameters, layout_options(rank, options, sharded_)),
      reports_(layout_.slots().size()) {
  if (layout_.parameters().empty()) return;
  const ReductionSetup setup{rank_, layout_, sharded_, options.overlap, options.reduce_in_bf16};
  if (options.every_micro_batch && !rank.mesh.dp.trivial())
    reduction_ = std::make_unique<MicroBatchReduction>(setup);
  else
    reduction_ = std::make_unique<StepReduction>(setup);
  for (const ParameterRange& range : layout_.owned_ranges(sharded_ ? rank.mesh.dp.rank() : 0)) {
    owned_index_[range.parameter] = owned_.size();
    owned_.push_back({range, reduction_->owned_gradient(range), {}});
  }
}

void GradBuffer::start_step(std::int64_t num_micro_batches) {
  MEGATRON_CHECK_GT(num_micro_batches, 0);
  num_micro_batches_ = num_micro_batches;
  std::fill(reports_.begin(), reports_.end(), 0);
  if (reduction_ != nullptr) reduction_->start_step();
}

void GradBuffer::prepare(nn::Parameter& parameter) {
  if (parameter.trainable) reduction_->prepare(layout_.slot_of(parameter));
}

void GradBuffer::grad_ready(nn::Parameter& parameter) {
  if (!parameter.trainable) return;
  const FlatSlot& slot = layout_.slot_of(parameter);
  const std::int64_t reports = ++reports_[static_cast<std::size_t>(&slot - layout_.slots().data())];
  MEGATRON_CHECK_LE(reports, num_micro_batches_, parameter.name, " reported more gradients than micro-batches");
  reduction_->complete(slot, reports == num_micro_batches_);
}

void GradBuffer::check_all_reported() const {
  for (std::size_t i = 0; i < reports_.size(); ++i)
    MEGATRON_CHECK_EQ(reports_[i], num_micro_batches_, "micro-batches that gave ", layout_.slots()[i].parameter->name,
                      " a gradient");
}

void GradBuffer::finish_step() {
  check_all_reported();
  if (reduction_ == nullptr) return;
  exposed_seconds_ = reduction_->take_exposed_seconds();
  const Clock::time_point start = Clock::now();
  reduction_->finish_step();
  sum_over_tensor_parallel();
  sum_tied_uses();
  reduction_->take_exposed_seconds();  // part of what follows
  exposed_seconds_ += seconds_since(start);
}

GradBuffer::BadGradient GradBuffer::find_not_finite() const {
  const auto bad = [this](const Tensor& part) { return part.numel() > 0 && !kernels::all_finite(rank_.exec, part); };
  const bool keeps_own = reduction_ != nullptr && reduction_->keeps_own_gradients();
  if (keeps_own)
    for (const FlatSlot& slot : layout_.slots()) {
      const Tensor flat = slot.parameter->main_grad.flat();
      const OwnedPart* const mine = owned_part(*slot.parameter);
      const std::int64_t begin = mine == nullptr ? 0 : mine->range.begin, end = mine == nullptr ? 0 : mine->range.end;
      if (bad(flat.slice(0, 0, begin)) || bad(flat.slice(0, end, flat.numel())))
        return {slot.parameter->name, BroughtBy::this_rank};
    }
  const BroughtBy by = rank_.mesh.dp.trivial() ? BroughtBy::this_rank
                       : keeps_own             ? BroughtBy::this_rank_unless_another
                                               : BroughtBy::any_rank;
  for (const OwnedPart& part : owned_)
    if (bad(part.gradient)) return {part.range.parameter->name, by};
  return {};
}

const OwnedPart* GradBuffer::owned_part(const nn::Parameter& parameter) const {
  const auto found = owned_index_.find(&parameter);
  return found == owned_index_.end() ? nullptr : &owned_[found->second];
}

Tensor GradBuffer::owned_rows(const nn::Parameter& parameter, std::int64_t row, std::int64_t rows) const {
  const OwnedPart* const part = owned_part(parameter);
  if (part == nullptr) return Tensor();
  const std::int64_t cols = parameter.sharding.local_cols;
  const std::int64_t begin = std::max(part->range.begin, row * cols);
  const std::int64_t end = std::min(part->range.end, (row + rows) * cols);
  if (begin >= end) return Tensor();
  return part->gradient.slice(0, begin - part->range.begin, end - part->range.begin);
}

void GradBuffer::sum_over_tensor_parallel() {
  const mesh::Group& tp = rank_.mesh.tp;
  if (tp.trivial()) return;
  // One operation for all of them. Shared rows lie there once per group of heads: ranks outside a group add zeros.
  // Ranks of the group have shards of the same layout, so they agree on what is owned.
  std::vector<std::pair<Tensor, std::int64_t>> parts;  // part of a gradient, its place in the packed tensor
  std::int64_t total = 0;
  for (const nn::Parameter* parameter : layout_.parameters()) {
    std::int64_t row = 0, rows = parameter->sharding.local_rows, group = 0, groups = 1;
    if (parameter->grad_reduction == nn::GradReduction::none) continue;
    if (parameter->grad_reduction == nn::GradReduction::shared_kv_rows) {
      const SharedRows shared = shared_rows(*parameter, tp.size());
      row = shared.local_row;
      rows = shared.rows;
      group = shared.group;
      groups = shared.groups;
    }
    const Tensor part = owned_rows(*parameter, row, rows);
    if (!part.defined()) continue;
    parts.emplace_back(part, total + group * part.numel());
    total += groups * part.numel();
  }
  if (total == 0) return;
  Tensor packed = rank_.exec.zeros(Shape{total}, parts.front().first.dtype(), MemoryKind::communication);
  for (auto& [part, place] : parts) kernels::copy(rank_.exec, part, packed.slice(0, place, place + part.numel()));
  packed = tp.all_reduce(packed, "gradients shared by tensor-parallel ranks");
  for (auto& [part, place] : parts) kernels::copy(rank_.exec, packed.slice(0, place, place + part.numel()), part);
}

void GradBuffer::sum_tied_uses() {
  nn::Parameter* table = nullptr;
  nn::Parameter* head = nullptr;
  for (nn::Parameter* parameter : layout_.parameters()) {
    if (parameter->shared_embedding) table = parameter;
    if (parameter->tied_use) head = parameter;
  }
  nn::Parameter* mine = table != nullptr ? table : head;
  if (mine == nullptr) return;
  // Both uses have buckets of their own and equal sizes: their shards are cut alike.
  const OwnedPart* const part = owned_part(*mine);
  if (part == nullptr) return;
  if (table != nullptr && head != nullptr) {
    kernels::add_in_place(rank_.exec, owned_part(*head)->gradient, Tensor(part->gradient));
    return;
  }
  MEGATRON_CHECK_EQ(rank_.mesh.embedding.size(), 2, "stages that use the tied table ", mine->name);
  rank_.mesh.embedding.all_reduce(part->gradient, "gradient of the tied table");
}

}  // namespace megatron::optim
