// Self-attention cut over heads (arXiv 1909.08053 §3), with grouped key/value heads (arXiv 2305.13245).
// Legend: T tokens, H hidden, G local key/value groups, P query heads per group, N = G·P local query heads, D head
// size, R = G·(P + 2)·D rows of the local linear_qkv: per group [P query heads | key | value]. Queries, keys and values
// are read where linear_qkv wrote them (strided views); rotary embedding works in place. Only with query/key norms are
// normed queries and keys tensors of their own.
//
// One row of the mixed tensor qkv_TR, for P = 2 (row stride R, group stride (P + 2)·D, head stride D):
//
//   | q0 q1 k v | q2 q3 k v | …   each q, k, v is D elements
//   |  group 0  |  group 1  |
//
//   queries of group g     [T, P, D]   offset g·(P + 2)·D             strides R, D, 1
//   key of group g         [T, 1, D]   offset (g·(P + 2) + P)·D       strides R, –, 1
//   value of group g       [T, 1, D]   offset (g·(P + 2) + P + 1)·D   strides R, –, 1
//   with P = 1, all heads  [T, G, D]   offsets 0, D, 2·D              strides R, 3·D, 1: one kernel call for all
#pragma once

#include <memory>
#include <optional>

#include "nn/attention/head_norm.h"
#include "nn/attention/rope_table.h"
#include "nn/linear.h"
#include "spec/block_shape.h"

namespace megatron::nn {

struct SelfAttentionOptions {
  Initializer qkv_init, proj_init;
  double dropout = 0.0;                   // of attention probabilities, in training
  std::int64_t layer = 0;                 // global, 0-based: part of the dropout key
  std::int64_t local_layer = 0;           // within the stage: index into the KV cache
  bool decay_head_norms = false;          // --apply-wd-to-qk-layernorm
  std::shared_ptr<const RopeTable> rope;  // null: no rotary embedding
  bool recompute_core = false;            // do not keep attention's output: backward repeats attention
};

class SelfAttention {
 public:
  struct Stash {
    ColumnParallelLinear::Stash linear_qkv;
    Tensor qkv_TR;  // after rotary embedding; before norms, where there are norms
    HeadNorm::Stash q_norm, k_norm;
    Tensor q_TND, k_TGD;  // normed and rotated; only with query/key norms
    Tensor lse_TN;
    RowParallelLinear::Stash linear_proj;  // its x is the attention output

    template <typename F>
    void visit(F&& f) const {
      linear_qkv.visit(f);
      f("qkv", qkv_TR);
      if (q_TND.defined()) {
        q_norm.visit(f);
        k_norm.visit(f);
        f("q", q_TND);
        f("k", k_TGD);
      }
      f("lse", lse_TN);
      linear_proj.visit(f);
    }
  };

  /// `name`: "decoder.layers.3.self_attention".
  SelfAttention(const LayerSetup& setup, const std::string& name, const spec::AttentionShape& shape,
                SelfAttentionOptions options);
  SelfAttention(const SelfAttention&) = delete;
  SelfAttention& operator=(const SelfAttention&) = delete;

  /// [T, H] (or token shard) → the same shape, without linear_proj's bias.
  Tensor forward(Pass& pass, const Tensor& x_TH, Stash& stash);
  Tensor backward(Pass& pass, Tensor dy_TH, Stash&& stash);
  ConstTensorView output_bias() const { return linear_proj_.bias_view(); }
  void collect(std::vector<Parameter*>& out);

 private:
  struct Heads;
  /// Where queries, keys and values lie in a mixed tensor.
  Heads heads_of(TensorView qkv_TR) const;
  void rotate(Pass& pass, Heads& heads, bool inverse);
  /// Attention's output and log-sum-exp from the stashed queries, keys and values.
  void repeat_core(Pass& pass, Stash& stash);
  Tensor core_forward(Pass& pass, const Heads& heads, Tensor& lse_TN);
  Tensor cached_forward(Pass& pass, const Heads& heads);
  Tensor core_backward(Pass& pass, const Tensor& o_TW, const Tensor& do_TW, Stash& stash);

  LayerSetup setup_;
  spec::AttentionShape shape_;
  SelfAttentionOptions options_;
  ColumnParallelLinear linear_qkv_;
  std::optional<HeadNorm> q_layernorm_, k_layernorm_;
  RowParallelLinear linear_proj_;
};

}  // namespace megatron::nn
