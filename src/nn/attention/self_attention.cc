#include "nn/attention/self_attention.h"

#include <cmath>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/rope.h"
#include "nn/recompute.h"

namespace megatron::nn {
namespace {

/// The sequences of a micro-batch as attention kernels take them, with what dropout needs.
struct Ranges {
  std::vector<std::int64_t> sample, first_position;
  kernels::SequenceRanges view;
};

Ranges ranges_of(const MicroBatch& batch) {
  Ranges ranges;
  const std::size_t count = batch.sequence_starts.size() - 1;
  ranges.sample.assign(count, 0);
  ranges.first_position.assign(count, 0);
  const std::vector<std::int64_t>& places = batch.tokens.place_in_sample();
  for (std::size_t i = 0; i < count && !places.empty(); ++i) {
    const auto row = static_cast<std::size_t>(batch.sequence_starts[i]);
    if (row >= places.size()) continue;  // an empty sequence at the end
    ranges.sample[i] = batch.tokens.sample_index[row];
    ranges.first_position[i] = places[row];
  }
  ranges.view = {batch.sequence_starts, {}, ranges.sample, ranges.first_position};
  return ranges;
}

spec::Sharding qkv_sharding(const LayerSetup& setup, const spec::AttentionShape& shape, int num_dims) {
  return spec::qkv_shard(num_dims, shape.heads, shape.groups, shape.head_size, num_dims == 1 ? 1 : shape.hidden,
                         setup.tp.rank(), setup.tp.size());
}

}  // namespace

/// With one query head per group (multi-head attention) all heads are one view with the group's stride; otherwise the
/// stride between query heads is not uniform, and each group is a kernel call of its own.
struct SelfAttention::Heads {
  TensorView q_MD;                  // first query head of each group: [T·G, D]
  TensorView k_MD;                  // [T·G, D]
  std::vector<TensorView> q, k, v;  // per kernel call: [T, heads, D]
};

SelfAttention::SelfAttention(const LayerSetup& setup, const std::string& name, const spec::AttentionShape& shape,
                             SelfAttentionOptions options)
    : setup_(setup),
      shape_(shape),
      options_(std::move(options)),
      linear_qkv_(setup, name + ".linear_qkv", shape.linear_qkv(), qkv_sharding(setup, shape, 2),
                  qkv_sharding(setup, shape, 1), options_.qkv_init,
                  shape.shares_groups() ? GradReduction::shared_kv_rows : GradReduction::none),
      linear_proj_(setup, name + ".linear_proj", shape.linear_proj(), options_.proj_init) {
  linear_qkv_.weight().group_rows = {shape.heads / shape.groups * shape.head_size, shape.head_size, shape.head_size};
  if (!shape.qk_norm) return;
  q_layernorm_.emplace(setup, name + ".q_layernorm", shape.head_norm, options_.decay_head_norms);
  k_layernorm_.emplace(setup, name + ".k_layernorm", shape.head_norm, options_.decay_head_norms);
}

SelfAttention::Heads SelfAttention::heads_of(TensorView qkv) const {
  const std::int64_t tokens = qkv.size(0), groups = shape_.local_groups(), width = shape_.head_size;
  const std::int64_t per_group = shape_.heads_per_local_group();
  const std::int64_t group_stride = (per_group + 2) * width, row_stride = qkv.stride(0);
  Heads heads;
  heads.q_MD = strided_view(qkv, 0, {tokens * groups, width}, {group_stride, 1});
  heads.k_MD = strided_view(qkv, per_group * width, {tokens * groups, width}, {group_stride, 1});
  const bool one_call = per_group == 1;
  const std::int64_t calls = one_call ? 1 : groups, kv_heads = one_call ? groups : 1;
  for (std::int64_t i = 0; i < calls; ++i) {
    const std::int64_t base = i * group_stride;
    const std::int64_t q_stride = one_call ? group_stride : width;
    heads.q.push_back(
        strided_view(qkv, base, {tokens, one_call ? groups : per_group, width}, {row_stride, q_stride, 1}));
    const Shape kv_shape = {tokens, kv_heads, width}, kv_strides = {row_stride, group_stride, 1};
    heads.k.push_back(strided_view(qkv, base + per_group * width, kv_shape, kv_strides));
    heads.v.push_back(strided_view(qkv, base + (per_group + 1) * width, kv_shape, kv_strides));
  }
  return heads;
}

namespace {

/// Splits dense [T, N, D] into the heads of each kernel call.
std::vector<TensorView> split_heads(TensorView dense_TND, std::size_t calls) {
  std::vector<TensorView> parts;
  const std::int64_t heads = dense_TND.size(1) / static_cast<std::int64_t>(calls);
  for (std::size_t i = 0; i < calls; ++i) {
    const auto first = static_cast<std::int64_t>(i) * heads;
    parts.push_back(dense_TND.slice(1, first, first + heads));
  }
  return parts;
}

}  // namespace

void SelfAttention::rotate(Pass& pass, Heads& heads, bool inverse) {
  if (options_.rope == nullptr) return;
  const RopeTable& table = *options_.rope;
  const std::int64_t* positions = pass.batch.tokens.position.data();
  for (std::size_t i = 0; i < heads.q.size(); ++i) {
    kernels::rope_in_place(pass.exec, heads.q[i], table.cos, table.sin, positions, table.interleaved, inverse);
    kernels::rope_in_place(pass.exec, heads.k[i], table.cos, table.sin, positions, table.interleaved, inverse);
  }
}

Tensor SelfAttention::forward(Pass& pass, const Tensor& x_TH, Stash& stash) {
  Tensor qkv = linear_qkv_.forward(pass, x_TH, stash.linear_qkv);
  Heads heads = heads_of(qkv);
  Tensor q, k;
  if (shape_.qk_norm) {
    const std::int64_t groups = shape_.local_groups(), per_group = shape_.heads_per_local_group();
    q = q_layernorm_->forward(pass, heads.q_MD, per_group, groups, stash.q_norm);
    k = k_layernorm_->forward(pass, heads.k_MD, 1, groups, stash.k_norm);
    heads.k = split_heads(k, heads.q.size());
    heads.q = split_heads(q, heads.q.size());
  }
  rotate(pass, heads, /*inverse=*/false);
  Tensor lse;
  Tensor o = pass.kv != nullptr ? cached_forward(pass, heads) : core_forward(pass, heads, lse);
  if (pass.keep_stash) {
    MEGATRON_CHECK(pass.kv == nullptr, "a pass with a KV cache has no backward");
    stash.qkv_TR = stashed(std::move(qkv));
    if (q.defined()) {
      stash.q_TND = stashed(std::move(q));
      stash.k_TGD = stashed(std::move(k));
    }
    if (!options_.recompute_core) stash.lse_TN = stashed(std::move(lse));
  }
  qkv = Tensor();
  Pass output_pass = with_stash(pass, pass.keep_stash && !options_.recompute_core);
  return linear_proj_.forward(output_pass, o, stash.linear_proj);
}

void SelfAttention::repeat_core(Pass& pass, Stash& stash) {
  const RecomputeScope scope(pass.exec);
  Heads heads = heads_of(stash.qkv_TR);
  if (shape_.qk_norm) {
    heads.k = split_heads(stash.k_TGD, heads.q.size());
    heads.q = split_heads(stash.q_TND, heads.q.size());
  }
  stash.linear_proj.x_TI = stashed(core_forward(pass, heads, stash.lse_TN));
  stash.lse_TN.set_kind(MemoryKind::stash);
}

namespace {

kernels::AttentionParams attention_params(const Pass& pass, const spec::AttentionShape& shape, int tp_rank,
                                          double dropout, std::int64_t layer) {
  kernels::AttentionParams params;
  params.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_size));
  params.first_head = tp_rank * shape.local_heads();
  if (pass.training() && dropout > 0.0) {
    params.dropout = dropout;
    params.dropout_key =
        make_philox_key(pass.seed, RandomPurpose::attention_dropout, static_cast<std::uint64_t>(layer));
  }
  return params;
}

}  // namespace

Tensor SelfAttention::core_forward(Pass& pass, const Heads& heads, Tensor& lse_TN) {
  const std::int64_t tokens = pass.batch.num_tokens, width = shape_.head_size;
  Tensor o = pass.exec.empty({tokens, shape_.local_heads(), width}, setup_.dtype);
  lse_TN = pass.exec.empty({tokens, shape_.local_heads()}, setup_.wide_dtype());
  const Ranges ranges = ranges_of(pass.batch);
  auto params = attention_params(pass, shape_, setup_.tp.rank(), options_.dropout, options_.layer);
  const std::vector<TensorView> outputs = split_heads(o, heads.q.size());
  std::int64_t first = 0;
  for (std::size_t i = 0; i < heads.q.size(); ++i) {
    const std::int64_t count = heads.q[i].size(1);
    kernels::attention_forward(pass.exec, params, ranges.view, heads.q[i], heads.k[i], heads.v[i], outputs[i],
                               lse_TN.view().slice(1, first, first + count));
    first += count;
    params.first_head += count;
  }
  return o.reshape({tokens, shape_.local_width()});
}

Tensor SelfAttention::cached_forward(Pass& pass, const Heads& heads) {
  KvCache& cache = *pass.kv;
  const std::int64_t tokens = pass.batch.num_tokens, width = shape_.head_size, end = cache.length + tokens;
  MEGATRON_CHECK_EQ(pass.batch.sequence_starts.size(), 2U, "a KV cache holds one sequence");
  MEGATRON_CHECK_LE(end, cache.capacity, "tokens of the KV cache");
  const auto layer = static_cast<std::size_t>(options_.local_layer);
  if (cache.layers.size() <= layer) cache.layers.resize(layer + 1);
  auto& [keys, values] = cache.layers[layer];
  const Shape shape = {cache.capacity, shape_.local_groups(), width};
  if (!keys.defined()) keys = pass.exec.empty(shape, setup_.dtype, MemoryKind::stash);
  if (!values.defined()) values = pass.exec.empty(shape, setup_.dtype, MemoryKind::stash);
  const std::size_t calls = heads.q.size();
  const std::vector<TensorView> k = split_heads(keys.view().slice(0, 0, end), calls);
  const std::vector<TensorView> v = split_heads(values.view().slice(0, 0, end), calls);
  Tensor o = pass.exec.empty({tokens, shape_.local_heads(), width}, setup_.dtype);
  Tensor lse = pass.exec.empty({tokens, shape_.local_heads()}, setup_.wide_dtype());
  const std::vector<TensorView> outputs = split_heads(o, calls);
  auto params = attention_params(pass, shape_, setup_.tp.rank(), 0.0, options_.layer);
  params.causal_offset = cache.length;
  const std::int64_t key_starts[2] = {0, end};
  const kernels::SequenceRanges ranges = {pass.batch.sequence_starts, key_starts, {}, {}};
  std::int64_t first = 0;
  for (std::size_t i = 0; i < calls; ++i) {
    kernels::copy(pass.exec, heads.k[i], k[i].slice(0, cache.length, end));
    kernels::copy(pass.exec, heads.v[i], v[i].slice(0, cache.length, end));
    const std::int64_t count = heads.q[i].size(1);
    kernels::attention_forward(pass.exec, params, ranges, heads.q[i], k[i], v[i], outputs[i],
                               lse.view().slice(1, first, first + count));
    first += count;
  }
  return o.reshape({tokens, shape_.local_width()});
}

Tensor SelfAttention::core_backward(Pass& pass, const Tensor& o_TW, const Tensor& do_TW, Stash& stash) {
  const std::int64_t tokens = pass.batch.num_tokens, per_group = shape_.heads_per_local_group();
  Tensor d_qkv = pass.exec.empty(stash.qkv_TR.shape(), setup_.dtype);
  Heads heads = heads_of(stash.qkv_TR), grads = heads_of(d_qkv);
  const std::size_t calls = heads.q.size();
  Tensor dq, dk;
  if (shape_.qk_norm) {
    heads.q = split_heads(stash.q_TND, calls);
    heads.k = split_heads(stash.k_TGD, calls);
    dq = pass.exec.empty(stash.q_TND.shape(), setup_.dtype);
    dk = pass.exec.empty(stash.k_TGD.shape(), setup_.dtype);
    grads.q = split_heads(dq, calls);
    grads.k = split_heads(dk, calls);
  }
  const Shape shape = {tokens, shape_.local_heads(), shape_.head_size};
  Tensor o = o_TW.reshape(shape), d_o = do_TW.reshape(shape);
  const std::vector<TensorView> outputs = split_heads(o, calls), d_outputs = split_heads(d_o, calls);
  const Ranges ranges = ranges_of(pass.batch);
  auto params = attention_params(pass, shape_, setup_.tp.rank(), options_.dropout, options_.layer);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < calls; ++i) {
    const std::int64_t count = heads.q[i].size(1);
    kernels::attention_backward(pass.exec, params, ranges.view, heads.q[i], heads.k[i], heads.v[i], outputs[i],
                                stash.lse_TN.view().slice(1, first, first + count), d_outputs[i], grads.q[i],
                                grads.k[i], grads.v[i]);
    first += count;
    params.first_head += count;
  }
  rotate(pass, grads, /*inverse=*/true);
  if (shape_.qk_norm) {
    q_layernorm_->backward(pass, dq, heads.q_MD, grads.q_MD, per_group, std::move(stash.q_norm));
    k_layernorm_->backward(pass, dk, heads.k_MD, grads.k_MD, 1, std::move(stash.k_norm));
  }
  return d_qkv;
}

Tensor SelfAttention::backward(Pass& pass, Tensor dy_TH, Stash&& stash) {
  if (options_.recompute_core) repeat_core(pass, stash);
  const Tensor o = stash.linear_proj.x_TI;
  Tensor d_o = linear_proj_.backward(pass, std::move(dy_TH), std::move(stash.linear_proj));
  Tensor d_qkv = core_backward(pass, o, d_o, stash);
  ColumnParallelLinear::Stash linear_qkv = std::move(stash.linear_qkv);
  stash = Stash();
  return linear_qkv_.backward(pass, std::move(d_qkv), std::move(linear_qkv));
}

void SelfAttention::collect(std::vector<Parameter*>& out) {
  linear_qkv_.collect(out);
  if (shape_.qk_norm) {
    q_layernorm_->collect(out);
    k_layernorm_->collect(out);
  }
  linear_proj_.collect(out);
}

}  // namespace megatron::nn
