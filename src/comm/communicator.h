// Collectives and messages among the ranks of one group. Every operation takes a label for the log, the watchdog and
// the key check; results are level 0: sums follow the canonical tree of kernels/tree_sum.h in every world. All members
// must post the same operations of a group in the same order; keys (operation, dtype, counts, label) are always
// compared and a mismatch is a CommError naming both ranks and both keys. Several operations may be outstanding.
// Tensors given to an operation are frozen until it has completed. Group size 1 completes at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/pending.h"
#include "kernels/tree_sum.h"
#include "tensor/tensor.h"

namespace megatron::comm {

using kernels::ReduceOp;

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;
  /// "tp", "dp", … and the global ranks of the members in group order.
  virtual const std::string& name() const = 0;
  virtual const std::vector<int>& members() const = 0;

  /// Every rank's tensor becomes the sum (max, min) over ranks, in place. Dense; float32, float64, int64, int32, and
  /// bfloat16 and float16, which are added in float32 and rounded once at the end.
  virtual Pending<Tensor> all_reduce(Tensor inout, ReduceOp op, std::string_view label) = 0;
  /// Rank r gets rows [Σ_{q<r} rows_per_rank[q], …) of the sum over ranks of `input`; dim 0 is cut. Dense, rows may be
  /// 0.
  virtual Pending<Tensor> reduce_scatter(Tensor input, const std::vector<std::int64_t>& rows_per_rank, Tensor output,
                                         std::string_view label) = 0;
  /// output = inputs of all ranks one after the other along dim 0; rank r gives rows_per_rank[r] rows.
  virtual Pending<Tensor> all_gather(Tensor input, const std::vector<std::int64_t>& rows_per_rank, Tensor output,
                                     std::string_view label) = 0;
  /// Rank r sends rows send_rows[q] of input to rank q, and receives receive_rows[q] from it, in rank order along dim
  /// 0.
  virtual Pending<Tensor> all_to_all(Tensor input, const std::vector<std::int64_t>& send_rows,
                                     const std::vector<std::int64_t>& receive_rows, Tensor output,
                                     std::string_view label) = 0;
  /// Everybody's tensor becomes root's.
  virtual Pending<Tensor> broadcast(Tensor inout, int root, std::string_view label) = 0;
  /// Point to point, matched in order per (sender, receiver). Sends never block: the tensor is shared or copied.
  virtual Pending<Tensor> send(Tensor tensor, int to, std::string_view label) = 0;
  virtual Pending<Tensor> receive(Tensor into, int from, std::string_view label) = 0;
  virtual void barrier(std::string_view label) = 0;
};

}  // namespace megatron::comm
