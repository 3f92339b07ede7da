// A trainable tensor of a layer: its logical name, its shard, its value and the place where its gradient is summed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spec/sharding.h"
#include "tensor/tensor.h"

namespace megatron::nn {

/// Over which ranks of the tensor-parallel group the gradient must still be summed at the end of a step (besides DP).
enum class GradReduction : std::uint8_t {
  none,             // the shard's gradient is complete
  tensor_parallel,  // each rank saw some of the tokens or heads: sum over TP (norm weights and row biases under SP, q/k
                    // norms)
  shared_kv_rows,   // rows of key/value heads that several TP ranks hold: sum these rows over those ranks
};

/// How a parameter is initialised, as a function of the logical element index (kernels/initialize.h).
struct Initializer {
  enum class Kind : std::uint8_t { zeros, ones, normal, uniform } kind = Kind::zeros;
  double scale = 0.0;  // std or bound
};

struct Parameter {
  std::string name;  // Megatron Core's, with the global layer number: decoder.layers.0.mlp.linear_fc1.weight
  spec::Sharding sharding;
  Initializer init;
  GradReduction grad_reduction = GradReduction::none;
  bool trainable = true;
  /// No weight decay: biases and tensors of one dimension (Megatron's rule).
  bool decay = true;
  /// This is the head's use of the tied embedding table: same name and logical tensor as the table. It has a main_grad
  /// of its own; it is neither counted in the norm nor saved. Its value shares the table's memory where both live on
  /// one stage.
  bool tied_use = false;
  /// The lookup's table of a model whose head is tied to it (the use in the head has tied_use instead): the gradients
  /// of both uses are summed once per step, over the embedding group where they live on different stages.
  bool shared_embedding = false;

  /// Parameters of one group may share a bucket where gradients are reduced after every micro-batch, because they
  /// complete it together: 0 the embedding, i + 1 layer i, then the final norm (in backward) and the head (in forward).
  std::int64_t bucket_group = 0;

  /// Rows of the parts that each group of logical rows consists of: queries, keys, values of linear_qkv. Empty: one
  /// matrix.
  std::vector<std::int64_t> group_rows;

  Tensor value;      // local shard, [local_rows] or [local_rows, local_cols]; on meta (a shape without memory) while
                     // a ParameterGate has released it
  Tensor main_grad;  // same shape; set by optim/step_reduction.h or micro_batch_reduction.h; tasks add to it
  /// main_grad holds nothing of use: the next task writes it instead of adding (matrices only; vectors are zeroed).
  bool main_grad_is_stale = false;
};

/// True if `use` is the head's use of a tied table and has the memory of that table, one of `parameters` (of one
/// rank). Then its value is initialised, updated, saved and loaded with the table; on another rank it is a copy of
/// its own.
bool shares_table(const Parameter& use, std::span<Parameter* const> parameters);

}  // namespace megatron::nn
