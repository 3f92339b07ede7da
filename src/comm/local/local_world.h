// Ranks as threads of one process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/local/local_group.h"
#include "comm/rank_core.h"
#include "comm/watchdog.h"

namespace megatron::comm {

class LocalWorld : public World {
 public:
  explicit LocalWorld(const WorldOptions& options);

  int world_size() const override { return options_.world_size; }
  std::vector<int> local_ranks() const override;
  bool is_main_process() const override { return true; }
  void run(const std::function<void(RankContext&)>& fn) override;
  bool failure_reported() const override { return options_.print_failure && shared_.abort.aborted(); }

 private:
  using GroupId = std::pair<std::pair<std::string, std::vector<int>>, int>;
  void not_started(int rank, const char* reason);
  void run_rank(int rank, const std::function<void(RankContext&)>& fn);
  LocalGroup& group(const std::string& name, const std::vector<int>& members, int instance);
  void fail(int rank, const std::exception_ptr& error);
  void abort(const Culprit& culprit, const std::exception_ptr& error, const std::string& table);
  std::unique_ptr<Watchdog> start_watchdog();

  WorldOptions options_;
  LocalShared shared_;
  std::vector<std::unique_ptr<RankCore>> cores_;
  std::atomic<Watchdog*> watchdog_{nullptr};
  std::mutex groups_mutex_;
  std::map<GroupId, std::unique_ptr<LocalGroup>> groups_;
  std::mutex closing_mutex_;
  std::condition_variable closing_;
  int at_end_ = 0;
};

}  // namespace megatron::comm
