// What a layer sees of one micro-batch on its way through a stage.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mesh/mesh.h"
#include "nn/parameter_gate.h"
#include "nn/weight_grad.h"

namespace megatron::nn {

/// Logical place of each local row of a token list: which global sample it belongs to and where in it. `position` is
/// what embeddings use (it may restart at a document within the sample); `row_position` counts from the sample's first
/// row to its last and is what randomness uses. An empty row_position stands for `position`.
struct TokenMap {
  std::vector<std::int64_t> sample_index, position, row_position;
  const std::vector<std::int64_t>& place_in_sample() const { return row_position.empty() ? position : row_position; }
  TokenMap slice(std::int64_t begin, std::int64_t end) const;
};

/// One micro-batch: all tokens of sequence 0, then of sequence 1, … Alive until its last backward or W. On meta tensors
/// the vectors that hold values (all but sequence_starts) stay empty and num_tokens alone counts.
struct MicroBatch {
  std::int64_t index = 0;  // within the step
  std::int64_t num_tokens = 0;
  std::vector<std::int64_t> ids, labels;
  std::vector<float> loss_mask;               // weights, any value ≥ 0
  std::vector<std::int64_t> sequence_starts;  // cu_seqlens, first 0, last num_tokens
  TokenMap tokens;                            // of all rows
  /// Of the rows this rank holds between layers under sequence parallelism; equal to `tokens` without it.
  TokenMap shard_tokens;
  std::int64_t shard_begin = 0, shard_end = 0;  // which rows these are
};

/// Fills shard_tokens, shard_begin and shard_end for TP rank `rank` of `size` (num_tokens must be a multiple of size),
/// or for the whole when size is 1.
void set_token_shard(MicroBatch& batch, int rank, int size);

enum class Mode : std::uint8_t { train, evaluate, prefill, decode };

/// Keys and values of earlier tokens, one pair per layer: [capacity, local groups, head size]; for one sequence.
struct KvCache {
  std::int64_t length = 0;  // tokens already in all layers; whoever runs the stage raises it after each pass
  std::int64_t capacity = 0;
  std::vector<std::pair<Tensor, Tensor>> layers;  // by local layer number; allocated on first use
};

struct Pass {
  mesh::Rank& rank;
  kernels::Executor& exec;
  const MicroBatch& batch;
  Mode mode = Mode::train;
  /// True: forward keeps what backward needs; the head's forward then also writes its main_grad (unless
  /// weights_apart). False: evaluation, inference.
  bool keep_stash = true;
  WeightGradQueue& weight_grads;
  std::uint64_t seed = 0;  // of dropout; the run's
  /// Multiplies the loss mask to seed backward (1 except in float16: loss scale × a power of two).
  double backward_scale = 1.0;
  /// The schedule computes weight gradients in instructions of their own (W, as the zero-bubble schedules do): a layer
  /// must not form them in forward.
  bool weights_apart = false;
  KvCache* kv = nullptr;
  /// Sees the residual stream: 0 = input of the first layer, i = output of layer i (global numbers). Under sequence
  /// parallelism it sees the shard. Null in training.
  std::function<void(std::int64_t layer, const Tensor& hidden)> observe_hidden = nullptr;
  /// Asked before values of parameters are used; null: they are always there.
  ParameterGate* parameter_gate = nullptr;

  bool training() const { return mode == Mode::train; }
};

}  // namespace megatron::nn
