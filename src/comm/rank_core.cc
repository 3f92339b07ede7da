#include "comm/rank_core.h"

#include <algorithm>
#include <utility>

#include "comm/decorators.h"
#include "comm/group_communicator.h"

namespace megatron::comm {

CoreRankContext::CoreRankContext(RankCore& core, int world_size, int ranks_on_machine, ChannelFactory factory)
    : core_(core), world_size_(world_size), ranks_on_machine_(ranks_on_machine), factory_(std::move(factory)) {}

std::shared_ptr<Communicator> CoreRankContext::create_group(const std::string& name, const std::vector<int>& members) {
  MEGATRON_CHECK(!members.empty(), "group ", name, " without members");
  for (std::size_t i = 0; i < members.size(); ++i) {
    MEGATRON_CHECK(members[i] >= 0 && members[i] < world_size_, "group ", name, " names rank ", members[i], " of ",
                   world_size_);
    MEGATRON_CHECK(i == 0 || members[i - 1] < members[i], "members of group ", name, " must ascend");
  }
  const auto own = std::find(members.begin(), members.end(), core_.rank);
  MEGATRON_CHECK(own != members.end(), "group ", name, " made by rank ", core_.rank, ", which is not in it");
  const int rank_in_group = static_cast<int>(own - members.begin());
  const int instance = instances_[{name, members}]++;
  std::unique_ptr<Channel> channel;
  if (members.size() == 1)
    channel = std::make_unique<SelfChannel>();
  else
    channel = factory_(name, members, rank_in_group, instance);
  channel = decorate(std::move(channel), core_, name, static_cast<int>(members.size()));
  return std::make_shared<GroupCommunicator>(core_, name, members, rank_in_group, std::move(channel));
}

void CoreRankContext::note_progress(std::string_view what, std::int64_t iteration) {
  core_.status.note_progress(what, iteration);
}

}  // namespace megatron::comm
