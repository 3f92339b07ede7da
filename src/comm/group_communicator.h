// The front of every communicator: checks arguments, counts bytes, publishes what the rank does, hands on to a channel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/rank_core.h"
#include "comm/request.h"

namespace megatron::comm {

class GroupCommunicator : public Communicator {
 public:
  GroupCommunicator(RankCore& core, std::string name, std::vector<int> members, int rank_in_group,
                    std::unique_ptr<Channel> channel);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  const std::string& name() const override { return name_; }
  const std::vector<int>& members() const override { return members_; }

  Pending<Tensor> all_reduce(Tensor inout, ReduceOp op, std::string_view label) override;
  Pending<Tensor> reduce_scatter(Tensor input, const std::vector<std::int64_t>& rows_per_rank, Tensor output,
                                 std::string_view label) override;
  Pending<Tensor> all_gather(Tensor input, const std::vector<std::int64_t>& rows_per_rank, Tensor output,
                             std::string_view label) override;
  Pending<Tensor> all_to_all(Tensor input, const std::vector<std::int64_t>& send_rows,
                             const std::vector<std::int64_t>& receive_rows, Tensor output,
                             std::string_view label) override;
  Pending<Tensor> broadcast(Tensor inout, int root, std::string_view label) override;
  Pending<Tensor> send(Tensor tensor, int to, std::string_view label) override;
  Pending<Tensor> receive(Tensor into, int from, std::string_view label) override;
  void barrier(std::string_view label) override;

 private:
  Pending<Tensor> post(Request request, Tensor result);

  RankCore& core_;
  std::string name_;
  std::vector<int> members_;
  int rank_;
  std::unique_ptr<Channel> channel_;
  std::int64_t sequence_ = 0;
};

/// The channel of a group of one rank: everything is done at once, what has to be copied is copied.
class SelfChannel : public Channel {
 public:
  std::unique_ptr<Operation> post(Request request) override;
};

}  // namespace megatron::comm
