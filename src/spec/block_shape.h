// Sizes and costs of one rank's layers as formulas: parameters, FLOPs, bytes kept for backward, bytes on the wire.
// Layers take these shapes as constructor arguments, so dimensions exist once; tests hold the formulas against counted
// runs. Legend: T tokens of a micro-batch, n tensor-parallel ranks. "Local" = of one rank. Counts are elements unless
// named bytes.
#pragma once

#include <cstdint>
#include <span>

#include "spec/model_spec.h"
#include "spec/recompute_spec.h"

namespace megatron::spec {

/// How layers are cut over the tensor-parallel group.
struct TensorLayout {
  int size = 1;
  bool sequence_parallel = false;

  /// Rows of the token list that this rank holds between layers.
  std::int64_t token_rows(std::int64_t tokens) const { return sharded() ? tokens / size : tokens; }
  bool sharded() const { return sequence_parallel && size > 1; }
};

/// Bytes of one element: of weights and activations within a layer, and of the residual stream. Statistics, sums of the
/// softmax and losses are wide.
struct ElementBytes {
  static constexpr std::int64_t kWide = 4;
  std::int64_t value = 4, stream = 4;
};

/// Bytes that one rank puts on the wire of the tensor-parallel group, counted as every world counts them:
/// all_reduce 2·(n−1)/n, all_gather and reduce_scatter (n−1)/n of the whole tensor's bytes.
struct Traffic {
  std::int64_t all_reduce = 0, all_gather = 0, reduce_scatter = 0;
  Traffic& operator+=(const Traffic& other);
  bool operator==(const Traffic&) const = default;
};
Traffic operator+(Traffic a, const Traffic& b);
Traffic all_reduce_traffic(std::int64_t bytes, int size);
Traffic all_gather_traffic(std::int64_t whole_bytes, int size);
Traffic reduce_scatter_traffic(std::int64_t whole_bytes, int size);

/// y[T, out] = x[T, in]·Wᵀ (+ b).
struct LinearShape {
  std::int64_t in = 0, out = 0;              // logical
  std::int64_t local_in = 0, local_out = 0;  // of one rank
  bool bias = false;
  /// The bias is added to the sum over ranks: every rank holds the whole of it.
  bool row_parallel = false;

  std::int64_t parameters() const { return local_in * local_out + (bias ? (row_parallel ? out : local_out) : 0); }
  std::int64_t forward_flops(std::int64_t tokens) const { return 2 * tokens * local_in * local_out; }
  std::int64_t backward_flops(std::int64_t tokens) const { return 2 * forward_flops(tokens); }
};
/// Output rows cut over n ranks. Throws where they do not divide.
LinearShape column_linear(std::int64_t in, std::int64_t out, bool bias, int size);
/// Input columns cut over n ranks.
LinearShape row_linear(std::int64_t in, std::int64_t out, bool bias, int size);

/// A norm over `width` features, one weight (and bias) for all rows.
struct NormShape {
  Normalization kind = Normalization::layer_norm;
  std::int64_t width = 0;
  double epsilon = 1e-5;

  bool has_bias() const { return kind == Normalization::layer_norm; }
  std::int64_t parameters() const { return has_bias() ? 2 * width : width; }
  /// Mean (LayerNorm only) and reciprocal deviation of each row.
  std::int64_t statistics(std::int64_t rows) const { return has_bias() ? 2 * rows : rows; }
};

/// Self-attention of one layer.
struct AttentionShape {
  std::int64_t hidden = 0, heads = 0, groups = 0, head_size = 0;  // logical
  bool qkv_bias = false, proj_bias = false, qk_norm = false;
  NormShape head_norm;  // of each query and key head
  TensorLayout layout;

  std::int64_t local_heads() const { return heads / layout.size; }
  /// With fewer groups than ranks each rank holds a copy of one group's key and value.
  std::int64_t local_groups() const { return groups >= layout.size ? groups / layout.size : 1; }
  std::int64_t heads_per_local_group() const { return local_heads() / local_groups(); }
  bool shares_groups() const { return groups < layout.size; }
  std::int64_t local_qkv_rows() const { return (local_heads() + 2 * local_groups()) * head_size; }
  std::int64_t local_width() const { return local_heads() * head_size; }
  LinearShape linear_qkv() const;
  LinearShape linear_proj() const;

  std::int64_t parameters() const;
  std::int64_t linear_flops(std::int64_t tokens) const;  // forward; backward is twice that
  /// Scores and weighted sums of the causal half, forward; `lengths` of the sequences of the micro-batch.
  std::int64_t core_flops(std::span<const std::int64_t> lengths) const;
  /// Elements kept for backward besides the input.
  std::int64_t stash(std::int64_t tokens) const;
  /// Elements of these that are wide: log-sum-exp (`core`) and statistics of the head norms.
  std::int64_t stashed_statistics(std::int64_t tokens, bool core) const;
};

struct MlpShape {
  std::int64_t hidden = 0, ffn = 0;  // logical
  bool gated = false, bias = false;
  TensorLayout layout;

  LinearShape linear_fc1() const;
  LinearShape linear_fc2() const;
  std::int64_t parameters() const { return linear_fc1().parameters() + linear_fc2().parameters(); }
  std::int64_t linear_flops(std::int64_t tokens) const;
  std::int64_t stash(std::int64_t tokens) const;
};

/// One pre-norm Transformer layer.
struct BlockShape {
  NormShape norm;  // before attention and before the MLP
  AttentionShape attention;
  MlpShape mlp;
  TensorLayout layout;

  std::int64_t parameters() const { return 2 * norm.parameters() + attention.parameters() + mlp.parameters(); }
  std::int64_t forward_matmul_flops(std::int64_t tokens) const;
  std::int64_t backward_matmul_flops(std::int64_t tokens) const { return 2 * forward_matmul_flops(tokens); }
  /// Elements kept between forward and backward, without what is recomputed.
  std::int64_t stash(std::int64_t tokens, const RecomputeModules& recompute = {}) const;
  Traffic forward_traffic(std::int64_t tokens, std::int64_t value_bytes) const;
  Traffic backward_traffic(std::int64_t tokens, std::int64_t value_bytes) const;
};

/// Token table cut over the ranks by rows, and learned positions.
struct EmbeddingShape {
  std::int64_t hidden = 0, vocab = 0, padded_vocab = 0;
  std::int64_t positions = 0;  // 0: none
  TensorLayout layout;

  std::int64_t local_vocab() const { return padded_vocab / layout.size; }
  std::int64_t parameters() const { return (local_vocab() + positions) * hidden; }
  /// Of the residual stream's type.
  Traffic forward_traffic(std::int64_t tokens, std::int64_t stream_bytes) const;
  Traffic backward_traffic(std::int64_t tokens, std::int64_t stream_bytes) const;
};

/// Projection to the vocabulary with cross-entropy. It works on tiles of tokens and forms its gradients in the forward
/// pass of training, tile by tile, so that a tile's logits are needed once and never exist for all tokens.
struct HeadShape {
  /// A multiple of the matrix product's chunk of K: then the weight gradient has the bits of one product over all
  /// tokens.
  static constexpr std::int64_t kTileTokens = 768;

  std::int64_t hidden = 0, vocab = 0, padded_vocab = 0;
  TensorLayout layout;

  std::int64_t local_vocab() const { return padded_vocab / layout.size; }
  LinearShape linear() const { return column_linear(hidden, padded_vocab, false, layout.size); }
  std::int64_t parameters() const { return linear().parameters(); }
  /// Of a forward pass of training: the product and its two gradients.
  std::int64_t forward_matmul_flops(std::int64_t tokens) const { return 3 * linear().forward_flops(tokens); }
  /// The input's gradient.
  std::int64_t stash(std::int64_t tokens) const { return layout.token_rows(tokens) * hidden; }
  /// In addition where weight gradients are computed apart (W): input and logits' gradient of all tokens.
  std::int64_t stash_for_weights(std::int64_t tokens) const { return tokens * (hidden + local_vocab()); }
  /// A pass that keeps nothing (evaluation) forms no gradient.
  Traffic forward_traffic(std::int64_t tokens, std::int64_t value_bytes, bool training = true) const;
};

/// Shapes of a model's parts. `model` is complete (derived fields set). Throw where the layout does not divide the
/// model.
NormShape norm_shape(const ModelSpec& model);
BlockShape block_shape(const ModelSpec& model, TensorLayout layout);
EmbeddingShape embedding_shape(const ModelSpec& model, TensorLayout layout);
HeadShape head_shape(const ModelSpec& model, TensorLayout layout);

/// One pipeline stage as a sum over its parts.
struct StageShape {
  BlockShape block;
  EmbeddingShape embedding;
  HeadShape head;
  NormShape final_norm;
  std::int64_t layers = 0;
  bool has_embedding = false, has_head = false;
  /// The head uses the memory of the embedding table on the same stage.
  bool head_shares_memory = false;
  RecomputeSpec recompute;

  std::int64_t parameters() const;  // elements held
  std::int64_t forward_matmul_flops(std::int64_t tokens) const;
  std::int64_t backward_matmul_flops(std::int64_t tokens) const {
    return layers * block.backward_matmul_flops(tokens) + recomputed_matmul_flops(tokens);
  }
  /// Of backward, for what it computes again.
  std::int64_t recomputed_matmul_flops(std::int64_t tokens) const;
  /// How many layers' attention backward computes again.
  std::int64_t recomputed_attentions() const;
  /// Elements kept between forward and backward; `weights_apart`: until W.
  std::int64_t stash(std::int64_t tokens, bool weights_apart = false) const;
  /// Elements of these that belong to the residual stream, and that are wide.
  std::int64_t stashed_stream(std::int64_t tokens) const;
  std::int64_t stashed_statistics(std::int64_t tokens) const;
  std::int64_t stash_bytes(std::int64_t tokens, ElementBytes bytes, bool weights_apart = false) const;
  Traffic forward_traffic(std::int64_t tokens, ElementBytes bytes) const;
  Traffic backward_traffic(std::int64_t tokens, ElementBytes bytes) const;
};
StageShape stage_shape(const ModelSpec& model, TensorLayout layout, std::int64_t layers, bool first, bool last,
                       const RecomputeSpec& recompute = {});

}  // namespace megatron::spec
