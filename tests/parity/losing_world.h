// A world in which one operation is forgotten: every rank keeps what it has instead of the sum over the group.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"

namespace megatron::parity {

/// The sums of a run: group, operation and label. Layers give the name of their weight as label.
struct SumName {
  std::string group, operation, label;
  auto operator<=>(const SumName&) const = default;
};

/// What all ranks of a world have posted.
class SumLog {
 public:
  void add(const SumName& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_.insert(name);
  }
  std::set<SumName> names() const { return names_; }

 private:
  std::mutex mutex_;
  std::set<SumName> names_;
};

class LosingCommunicator final : public comm::Communicator {
 public:
  LosingCommunicator(std::shared_ptr<comm::Communicator> inner, SumName lost, SumLog* log)
      : inner_(std::move(inner)), lost_(std::move(lost)), log_(log) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  const std::vector<int>& members() const override { return inner_->members(); }

  comm::Pending<Tensor> all_reduce(Tensor inout, comm::ReduceOp op, std::string_view label) override {
    if (is_lost("all_reduce", label)) return comm::Pending<Tensor>(std::move(inout));
    return inner_->all_reduce(std::move(inout), op, label);
  }
  comm::Pending<Tensor> reduce_scatter(Tensor input, const std::vector<std::int64_t>& rows, Tensor output,
                                       std::string_view label) override {
    if (!is_lost("reduce_scatter", label))
      return inner_->reduce_scatter(std::move(input), rows, std::move(output), label);
    std::int64_t first = 0;
    for (int r = 0; r < rank(); ++r) first += rows[static_cast<std::size_t>(r)];
    const Tensor own = input.slice(0, first, first + rows[static_cast<std::size_t>(rank())]);
    std::memcpy(output.view().pointer, own.view_const().pointer, static_cast<std::size_t>(own.bytes()));
    return comm::Pending<Tensor>(std::move(output));
  }
  comm::Pending<Tensor> all_gather(Tensor input, const std::vector<std::int64_t>& rows, Tensor output,
                                   std::string_view label) override {
    return inner_->all_gather(std::move(input), rows, std::move(output), label);
  }
  comm::Pending<Tensor> all_to_all(Tensor input, const std::vector<std::int64_t>& send_rows,
                                   const std::vector<std::int64_t>& receive_rows, Tensor output,
                                   std::string_view label) override {
    return inner_->all_to_all(std::move(input), send_rows, receive_rows, std::move(output), label);
  }
  comm::Pending<Tensor> broadcast(Tensor inout, int root, std::string_view label) override {
    return inner_->broadcast(std::move(inout), root, label);
  }
  comm::Pending<Tensor> send(Tensor tensor, int to, std::string_view label) override {
    return inner_->send(std::move(tensor), to, label);
  }
  comm::Pending<Tensor> receive(Tensor into, int from, std::string_view label) override {
    return inner_->receive(std::move(into), from, label);
  }
  void barrier(std::string_view label) override { inner_->barrier(label); }

 private:
  bool is_lost(const char* operation, std::string_view label) {
    const SumName name = {inner_->name(), operation, std::string(label)};
    if (log_ != nullptr) log_->add(name);
    return name == lost_;
  }

  std::shared_ptr<comm::Communicator> inner_;
  SumName lost_;
  SumLog* log_;
};

class LosingContext final : public comm::RankContext {
 public:
  LosingContext(comm::RankContext& inner, const SumName& lost, SumLog* log) : inner_(inner), lost_(lost), log_(log) {}
  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int ranks_on_this_machine() const override { return inner_.ranks_on_this_machine(); }
  std::shared_ptr<comm::Communicator> create_group(const std::string& name, const std::vector<int>& members) override {
    auto group = inner_.create_group(name, members);
    if (group == nullptr || group->size() == 1) return group;
    return std::make_shared<LosingCommunicator>(std::move(group), lost_, log_);
  }
  comm::TrafficCounters& traffic() override { return inner_.traffic(); }
  void note_progress(std::string_view what, std::int64_t iteration) override { inner_.note_progress(what, iteration); }
  void set_trace(Trace* trace) override { inner_.set_trace(trace); }

 private:
  comm::RankContext& inner_;
  const SumName& lost_;
  SumLog* log_;
};

/// `lost` empty: nothing is lost. `log` may be null.
class LosingWorld final : public comm::World {
 public:
  LosingWorld(std::unique_ptr<comm::World> inner, SumName lost, SumLog* log)
      : inner_(std::move(inner)), lost_(std::move(lost)), log_(log) {}
  int world_size() const override { return inner_->world_size(); }
  std::vector<int> local_ranks() const override { return inner_->local_ranks(); }
  bool is_main_process() const override { return inner_->is_main_process(); }
  void run(const std::function<void(comm::RankContext&)>& fn) override {
    inner_->run([&](comm::RankContext& context) {
      LosingContext losing(context, lost_, log_);
      fn(losing);
    });
  }
  bool failure_reported() const override { return inner_->failure_reported(); }

 private:
  std::unique_ptr<comm::World> inner_;
  SumName lost_;
  SumLog* log_;
};

}  // namespace megatron::parity
