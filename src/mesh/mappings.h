// The operators f and g of tensor parallelism (arXiv 1909.08053 §3) and their sequence-parallel forms (arXiv
// 2205.05198), as plain functions: forward and backward of a layer call the one they need. Legend: T tokens, H hidden.
// Megatron's copy (nothing forward, all_reduce backward) and reduce (the reverse) are Group::all_reduce itself.
#pragma once

#include "kernels/executor.h"
#include "mesh/group.h"

namespace megatron::mesh {

/// [T/n, H] → [T, H]: tokens of all ranks in rank order. Group of one: the input itself.
comm::Pending<Tensor> gather_along_tokens(kernels::Executor& exec, const Group& group, Tensor x,
                                          std::string_view label);
/// [T, H] → [T/n, H]: the sum over ranks, this rank's tokens. T must be a multiple of n.
comm::Pending<Tensor> reduce_scatter_along_tokens(kernels::Executor& exec, const Group& group, Tensor x,
                                                  std::string_view label);
/// [T, H] → [T/n, H]: this rank's tokens, no communication (shares memory).
Tensor scatter_along_tokens(const Group& group, const Tensor& x);
/// [T, H/n] → [T, H]
Tensor gather_along_hidden(kernels::Executor& exec, const Group& group, Tensor x, std::string_view label);
/// [T, H] → [T, H/n]: this rank's columns, no communication (copies: last stride stays 1 but rows are strided in the
/// source).
Tensor scatter_along_hidden(kernels::Executor& exec, const Group& group, const Tensor& x);
/// [T, H] → [T, H/n]: the sum over ranks, this rank's columns.
Tensor reduce_scatter_along_hidden(kernels::Executor& exec, const Group& group, Tensor x, std::string_view label);

}  // namespace megatron::mesh
