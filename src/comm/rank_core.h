// The means of one rank that are the same in every world: its record, counters, faults, and the front of its groups.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/fault_injector.h"
#include "comm/rank_status.h"
#include "comm/world.h"

namespace megatron::comm {

/// Lives as long as the world; used by the rank's thread alone, except `status`.
struct RankCore {
  RankCore(int rank_in, const WorldOptions& options)
      : rank(rank_in), faults(options.faults, rank_in), perturb_seed(options.perturb_seed) {}

  int rank;
  RankStatus status;
  TrafficCounters traffic;
  FaultInjector faults;
  std::uint64_t perturb_seed;
  std::uint64_t perturb_count = 0;
  Trace* trace = nullptr;
};

/// Makes the world's own channel for a group of more than one rank; `instance` counts groups of equal name and members.
using ChannelFactory = std::function<std::unique_ptr<Channel>(const std::string& name, const std::vector<int>& members,
                                                              int rank_in_group, int instance)>;

/// The RankContext of every world: worlds differ in the channels that `factory` makes.
class CoreRankContext : public RankContext {
 public:
  CoreRankContext(RankCore& core, int world_size, int ranks_on_machine, ChannelFactory factory);

  int rank() const override { return core_.rank; }
  int world_size() const override { return world_size_; }
  int ranks_on_this_machine() const override { return ranks_on_machine_; }
  std::shared_ptr<Communicator> create_group(const std::string& name, const std::vector<int>& members) override;
  TrafficCounters& traffic() override { return core_.traffic; }
  void note_progress(std::string_view what, std::int64_t iteration) override;
  void set_trace(Trace* trace) override { core_.trace = trace; }

 private:
  RankCore& core_;
  int world_size_;
  int ranks_on_machine_;
  ChannelFactory factory_;
  std::map<std::pair<std::string, std::vector<int>>, int> instances_;
};

}  // namespace megatron::comm
