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

}  // namespace

GradBuffer::GradBuffer(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, const GradBufferOptions& options)
    : rank_(rank),
      sharded_(options.sharded && !rank.mesh.dp.trivial()),
      overlap_(options.overlap),
      reduce_in_bf16_(options.reduce_in_bf16),
      layout_(parameters, options.bucket_size.value_or(default_bucket_size(rank)), sharded_ ? rank.mesh.dp.size() : 1,
              options.indivisible),
      owned_(layout_.owned_ranges(sharded_ ? rank.mesh.dp.rank() : 0)),
      buckets_(layout_.buckets().size()),
      reports_(layout_.slots().size()) {
  if (layout_.parameters().empty()) return;
  const DType dtype = accumulation_dtype(layout_.parameters().front()->value.dtype());
  buffer_ = rank_.exec.zeros(Shape{layout_.num_elements()}, dtype, MemoryKind::gradient);
  for (const FlatSlot& slot : layout_.slots())
    slot.parameter->main_grad =
        Tensor::on_storage(buffer_.storage(), slot.offset, slot.parameter->value.shape(), dtype);
}

void GradBuffer::start_step(std::int64_t num_micro_batches) {
  MEGATRON_CHECK_GT(num_micro_batches, 0);
  num_micro_batches_ = num_micro_batches;
  next_bucket_ = 0;
  exposed_seconds_ = 0.0;
  for (BucketState& bucket : buckets_) bucket.num_complete = 0;
  std::fill(reports_.begin(), reports_.end(), 0);
  if (!std::exchange(written_, true)) return;  // new memory is zero
  for (nn::Parameter* parameter : layout_.parameters()) {
    if (parameter->value.num_dims() == 1)
      kernels::fill_zero(rank_.exec, parameter->main_grad);
    else
      parameter->main_grad_is_stale = true;
  }
}

void GradBuffer::grad_ready(nn::Parameter& parameter) {
  if (!parameter.trainable) return;
  const FlatSlot& slot = layout_.slot_of(parameter);
  const std::int64_t reports = ++reports_[static_cast<std::size_t>(&slot - layout_.slots().data())];
  MEGATRON_CHECK_LE(reports, num_micro_batches_, parameter.name, " reported more gradients than micro-batches");
  if (reports < num_micro_batches_) return;
  ++buckets_[slot.bucket].num_complete;
  if (overlap_) launch_ready_buckets();
}

void GradBuffer::launch_ready_buckets() {
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) {
    const FlatBucket& bucket = layout_.buckets()[next_bucket_];
    BucketState& state = buckets_[next_bucket_];
    if (state.num_complete < std::ssize(bucket.slots)) return;
    if (!rank_.mesh.dp.trivial()) launch(bucket, state);
  }
}

void GradBuffer::launch(const FlatBucket& bucket, BucketState& state) {
  const mesh::Group& dp = rank_.mesh.dp;
  Tensor message = buffer_.slice(0, bucket.begin, bucket.end);
  if (reduce_in_bf16_) {
    Tensor rounded = rank_.exec.empty(message.shape(), DType::bfloat16, MemoryKind::communication);
    kernels::copy(rank_.exec, message, rounded);
    message = rounded;
  }
  state.result_begin = bucket.begin;
  if (!sharded_) {
    state.reduction = dp.all_reduce_async(message, "gradient bucket");
    return;
  }
  state.result_begin = bucket.shard_begin(dp.rank());
  const std::int64_t begin = state.result_begin - bucket.begin;
  const std::int64_t size = bucket.shard_sizes[static_cast<std::size_t>(dp.rank())];
  state.reduction = dp.communicator()->reduce_scatter(message, bucket.shard_sizes,
                                                      message.slice(0, begin, begin + size), "gradient bucket");
}

void GradBuffer::check_all_reported() const {
  for (std::size_t i = 0; i < reports_.size(); ++i)
    MEGATRON_CHECK_EQ(reports_[i], num_micro_batches_, "micro-batches that gave ", layout_.slots()[i].parameter->name,
                      " a gradient");
}

void GradBuffer::finish_step() {
  check_all_reported();
  const auto start = std::chrono::steady_clock::now();
  launch_ready_buckets();
  wait_for_buckets();
  sum_over_tensor_parallel();
  sum_tied_uses();
  exposed_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void GradBuffer::wait_for_buckets() {
  if (rank_.mesh.dp.trivial()) return;
  for (BucketState& bucket : buckets_) {
    const Tensor result = bucket.reduction.wait();
    if (reduce_in_bf16_)
      kernels::copy(rank_.exec, result, buffer_.slice(0, bucket.result_begin, bucket.result_begin + result.numel()));
  }
}

std::pair<std::int64_t, std::int64_t> GradBuffer::owned_elements(const nn::Parameter& parameter, std::int64_t row,
                                                                 std::int64_t rows) const {
  const std::int64_t cols = parameter.sharding.local_cols;
  for (const ParameterRange& range : owned_) {
    if (range.parameter != &parameter) continue;
    const std::int64_t begin = std::max(range.begin, row * cols), end = std::min(range.end, (row + rows) * cols);
    return {begin, std::max(begin, end)};
  }
  return {0, 0};
}

void GradBuffer::sum_over_tensor_parallel() {
  const mesh::Group& tp = rank_.mesh.tp;
  if (tp.trivial()) return;
  // One operation for all of them. Shared rows lie there once per group of heads: ranks outside a group add zeros.
  // Ranks of the group have shards of the same layout, so they agree on what is owned.
  std::vector<std::pair<Tensor, std::int64_t>> parts;  // part of a main_grad, its place in the packed tensor
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
    const auto [begin, end] = owned_elements(*parameter, row, rows);
    if (begin < end)
      parts.emplace_back(parameter->main_grad.flat().slice(0, begin, end), total + group * (end - begin));
    total += groups * (end - begin);
  }
  if (total == 0) return;
  Tensor packed = rank_.exec.zeros(Shape{total}, buffer_.dtype(), MemoryKind::communication);
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
  const auto [begin, end] = owned_elements(*mine, 0, mine->sharding.local_rows);
  if (begin == end) return;
  Tensor part = mine->main_grad.flat().slice(0, begin, end);
  if (table != nullptr && head != nullptr) {
    kernels::add_in_place(rank_.exec, head->main_grad.flat().slice(0, begin, end), part);
    return;
  }
  MEGATRON_CHECK_EQ(rank_.mesh.embedding.size(), 2, "stages that use the tied table ", mine->name);
  rank_.mesh.embedding.all_reduce(part, "gradient of the tied table");
}

}  // namespace megatron::optim
