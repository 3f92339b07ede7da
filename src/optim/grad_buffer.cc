#include "optim/grad_buffer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer_step.h"

namespace megatron::optim {
namespace {

bool has_own_bucket(const nn::Parameter& parameter) { return parameter.tied_use || parameter.shared_embedding; }

/// Which rows of a linear_qkv are key and value, where fewer groups than ranks exist (spec::qkv_shard): the last piece.
struct SharedRows {
  std::int64_t local_row = 0, rows = 0;  // in this rank's shard
  std::int64_t group = 0, groups = 0;
  std::int64_t cols = 0;
  std::int64_t numel_all_groups() const { return groups * rows * cols; }
};

SharedRows shared_rows(const nn::Parameter& parameter, int tp_size) {
  const spec::Sharding& s = parameter.sharding;
  MEGATRON_CHECK_EQ(s.pieces.size(), 2U, "query rows and shared rows of ", parameter.name);
  const spec::Piece& shared = s.pieces.back();
  SharedRows result;
  result.local_row = shared.local_row;
  result.rows = shared.global.rows;
  result.cols = s.local_cols;
  // The logical rows are all query rows and one set of shared rows per group.
  const std::int64_t shared_total = s.rows - s.pieces.front().global.rows * tp_size;
  result.groups = shared_total / result.rows;
  MEGATRON_CHECK(result.groups > 0 && shared_total % result.rows == 0 && s.rows % result.groups == 0, "rows of ",
                 parameter.name, " do not split into groups");
  result.group = shared.global.row / (s.rows / result.groups);
  return result;
}

}  // namespace

GradBuffer::GradBuffer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters,
                       std::optional<std::int64_t> bucket_size)
    : rank_(rank) {
  for (nn::Parameter* parameter : parameters)
    if (parameter->trainable) parameters_.push_back(parameter);
  const std::int64_t default_size = std::max<std::int64_t>(40'000'000, 1'000'000LL * rank.mesh.dp.size());
  const std::int64_t size = bucket_size.value_or(default_size);
  MEGATRON_CHECK_GT(size, 0, "elements of a gradient bucket");
  lay_out(size);
}

void GradBuffer::lay_out(std::int64_t bucket_size) {
  std::int64_t end = 0;
  const auto close = [&] {
    if (!buckets_.empty()) buckets_.back().end = end;
  };
  bool open = false;
  for (auto it = parameters_.rbegin(); it != parameters_.rend(); ++it) {
    const nn::Parameter& parameter = **it;
    MEGATRON_CHECK(parameter.value.dtype() == parameters_.front()->value.dtype(), "dtype of ", parameter.name,
                   " differs from that of ", parameters_.front()->name);
    if (!open || has_own_bucket(parameter)) {
      close();
      buckets_.push_back({});
      buckets_.back().begin = end;
    }
    MEGATRON_CHECK(slots_.emplace(&parameter, Slot{end, buckets_.size() - 1, 0}).second, parameter.name,
                   " is listed twice");
    ++buckets_.back().num_parameters;
    const std::int64_t used = end + parameter.value.numel() - buckets_.back().begin;  // without the gap behind it
    end = round_up(end + parameter.value.numel(), kernels::kNormSegment);
    open = !has_own_bucket(parameter) && used < bucket_size;
  }
  close();
  if (parameters_.empty()) return;
  const DType dtype = parameters_.front()->value.dtype();
  buffer_ = rank_.exec.zeros(Shape{end}, dtype, MemoryKind::gradient);
  for (nn::Parameter* parameter : parameters_)
    parameter->main_grad =
        Tensor::on_storage(buffer_.storage(), slots_.at(parameter).offset, parameter->value.shape(), dtype);
}

std::pair<std::int64_t, std::int64_t> GradBuffer::bucket_range(std::int64_t i) const {
  const Bucket& bucket = buckets_.at(static_cast<std::size_t>(i));
  return {bucket.begin, bucket.end};
}

void GradBuffer::start_step(std::int64_t num_micro_batches) {
  MEGATRON_CHECK_GT(num_micro_batches, 0);
  num_micro_batches_ = num_micro_batches;
  next_bucket_ = 0;
  exposed_seconds_ = 0.0;
  for (Bucket& bucket : buckets_) bucket.num_complete = 0;
  for (auto& [parameter, slot] : slots_) slot.reports = 0;
  if (!std::exchange(written_, true)) return;  // new memory is zero
  for (nn::Parameter* parameter : parameters_) {
    if (parameter->value.num_dims() == 1)
      kernels::fill_zero(rank_.exec, parameter->main_grad);
    else
      parameter->main_grad_is_stale = true;
  }
}

void GradBuffer::grad_ready(nn::Parameter& parameter) {
  if (!parameter.trainable) return;
  const auto it = slots_.find(&parameter);
  MEGATRON_CHECK(it != slots_.end(), parameter.name, " is not in the gradient buffer");
  Slot& slot = it->second;
  ++slot.reports;
  MEGATRON_CHECK_LE(slot.reports, num_micro_batches_, parameter.name, " reported more gradients than micro-batches");
  if (slot.reports < num_micro_batches_) return;
  ++buckets_[slot.bucket].num_complete;
  launch_ready_buckets();
}

void GradBuffer::launch_ready_buckets() {
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) {
    Bucket& bucket = buckets_[next_bucket_];
    if (bucket.num_complete < bucket.num_parameters) return;
    if (rank_.mesh.dp.trivial()) continue;
    bucket.reduction = rank_.mesh.dp.all_reduce_async(buffer_.slice(0, bucket.begin, bucket.end), "gradient bucket");
  }
}

void GradBuffer::check_all_reported() const {
  for (const nn::Parameter* parameter : parameters_)
    MEGATRON_CHECK_EQ(slots_.at(parameter).reports, num_micro_batches_, "micro-batches that gave ", parameter->name,
                      " a gradient");
}

void GradBuffer::finish_step() {
  check_all_reported();
  const auto start = std::chrono::steady_clock::now();
  wait_for_buckets();
  sum_over_tensor_parallel();
  sum_tied_uses();
  exposed_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void GradBuffer::wait_for_buckets() {
  if (rank_.mesh.dp.trivial()) return;
  for (Bucket& bucket : buckets_) bucket.reduction.wait();
}

void GradBuffer::sum_over_tensor_parallel() {
  const mesh::Group& tp = rank_.mesh.tp;
  if (tp.trivial()) return;
  std::int64_t total = 0;
  for (const nn::Parameter* parameter : parameters_) {
    if (parameter->grad_reduction == nn::GradReduction::tensor_parallel) total += parameter->main_grad.numel();
    if (parameter->grad_reduction == nn::GradReduction::shared_kv_rows)
      total += shared_rows(*parameter, tp.size()).numel_all_groups();
  }
  if (total == 0) return;
  // One operation for all of them. Shared rows lie there once per group of heads: ranks outside a group add zeros.
  Tensor packed = rank_.exec.zeros(Shape{total}, buffer_.dtype(), MemoryKind::communication);
  std::vector<std::pair<Tensor, Tensor>> places;  // part of a main_grad, its place in `packed`
  std::int64_t next = 0;
  const auto add_place = [&](const Tensor& part, std::int64_t offset) {
    places.emplace_back(part.flat(), packed.slice(0, offset, offset + part.numel()));
  };
  for (const nn::Parameter* parameter : parameters_) {
    if (parameter->grad_reduction == nn::GradReduction::tensor_parallel) {
      add_place(parameter->main_grad, next);
      next += parameter->main_grad.numel();
    } else if (parameter->grad_reduction == nn::GradReduction::shared_kv_rows) {
      const SharedRows shared = shared_rows(*parameter, tp.size());
      add_place(parameter->main_grad.slice(0, shared.local_row, shared.local_row + shared.rows),
                next + shared.group * shared.rows * shared.cols);
      next += shared.numel_all_groups();
    }
  }
  for (auto& [part, place] : places) kernels::copy(rank_.exec, part, place);
  packed = tp.all_reduce(packed, "gradients shared by tensor-parallel ranks");
  for (auto& [part, place] : places) kernels::copy(rank_.exec, place, part);
}

void GradBuffer::sum_tied_uses() {
  nn::Parameter* table = nullptr;
  nn::Parameter* head = nullptr;
  for (nn::Parameter* parameter : parameters_) {
    if (parameter->shared_embedding) table = parameter;
    if (parameter->tied_use) head = parameter;
  }
  if (table != nullptr && head != nullptr) {
    kernels::add_in_place(rank_.exec, head->main_grad, table->main_grad);
    return;
  }
  nn::Parameter* mine = table != nullptr ? table : head;
  if (mine == nullptr) return;
  MEGATRON_CHECK_EQ(rank_.mesh.embedding.size(), 2, "stages that use the tied table ", mine->name);
  rank_.mesh.embedding.all_reduce(mine->main_grad.flat(), "gradient of the tied table");
}

}  // namespace megatron::optim
