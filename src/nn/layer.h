// What the layers of this folder share: what they are built from besides their shape, and small helpers.
// A layer owns its parameters (so it never moves), keeps what backward needs in a public Stash, and has
//   Tensor forward(Pass&, const Tensor& x, Stash&);      Tensor backward(Pass&, Tensor dy, Stash&&);
// backward may overwrite dy only if it is unique. Weight gradients go through pass.weight_grads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/elementwise.h"
#include "nn/parameter.h"
#include "nn/pass.h"

namespace megatron::nn {

struct LayerSetup {
  tensor::Allocator& allocator;
  mesh::Group tp;
  bool sequence_parallel = false;
  DType dtype = DType::float32;        // of values and of activations within a layer
  std::optional<DType> residual = {};  // of the residual stream, where it is not `dtype`
  /// Where values of parameters are allocated, if not from `allocator`: on meta where something else will hold them.
  std::shared_ptr<tensor::Allocator> value_allocator = nullptr;
  DType residual_dtype() const { return residual.value_or(dtype); }
  /// Of what sums, softmax and losses are kept in; at least float32.
  DType wide_dtype() const { return accumulation_dtype(dtype); }
};

/// Allocates the local shard, uninitialised. Weight decay is off for 1-D tensors (biases among them).
Parameter make_parameter(const LayerSetup& setup, std::string name, const spec::Sharding& sharding, Initializer init,
                         GradReduction reduction = GradReduction::none);

/// Whether activations between layers are token shards in this pass: sequence parallelism, in training and evaluation.
/// Prefill and decode work on all tokens on every rank (their counts need not divide). Checks that the batch agrees.
bool token_sharded(const Pass& pass, const LayerSetup& setup);
/// Logical places, for dropout, of the rows that this rank holds between layers.
kernels::RowPositions local_rows(const Pass& pass);

/// The tensor as it goes into a stash: counted as such in the memory table.
inline Tensor stashed(Tensor tensor) {
  tensor.set_kind(MemoryKind::stash);
  return tensor;
}

/// A view of `shape` and `strides` starting `offset` elements into `base`.
TensorView strided_view(TensorView base, std::int64_t offset, const Shape& shape, const Shape& strides);

}  // namespace megatron::nn
