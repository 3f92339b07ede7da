// The ranks of one axis as layers see them: a communicator of any size, where size 1 costs nothing.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace megatron::mesh {

class Group {
 public:
  /// A group of one.
  Group() = default;
  explicit Group(std::shared_ptr<comm::Communicator> communicator);

  int rank() const { return communicator_ == nullptr ? 0 : communicator_->rank(); }
  int size() const { return communicator_ == nullptr ? 1 : communicator_->size(); }
  bool trivial() const { return size() == 1; }
  /// Null for a group of one that was never created.
  comm::Communicator* communicator() const { return communicator_.get(); }

  /// In place; level 0 (canonical tree). The pending form lets other work run meanwhile.
  comm::Pending<Tensor> all_reduce_async(Tensor inout, std::string_view label,
                                         comm::ReduceOp op = comm::ReduceOp::sum) const;
  Tensor all_reduce(Tensor inout, std::string_view label, comm::ReduceOp op = comm::ReduceOp::sum) const;
  void broadcast_from_first_rank(Tensor inout, std::string_view label) const;
  /// Several tensors in one operation; each result has size()·rows of its input. `allocator` holds the results.
  std::vector<Tensor> all_gather_coalesced(tensor::Allocator& allocator, const std::vector<Tensor>& inputs,
                                           std::string_view label) const;
  void barrier(std::string_view label) const;

 private:
  std::shared_ptr<comm::Communicator> communicator_;
};

}  // namespace megatron::mesh
