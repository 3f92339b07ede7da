// One rank per process: its thread, its channels, its watchdog, on top of the communication thread.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "comm/kept_tensors.h"
#include "comm/mpi/progress.h"
#include "comm/mpi/transport.h"
#include "comm/parker.h"
#include "comm/rank_core.h"
#include "comm/watchdog.h"

namespace megatron::comm {

class ProcessWorld : public World {
 public:
  /// `max_bytes`: the longest single transfer. Throws ConfigError if the launcher started another number of processes.
  ProcessWorld(const WorldOptions& options, TransportFactory open, std::int64_t max_bytes = Transport::kMaxBytes);
  ~ProcessWorld() override;

  int world_size() const override { return progress_.size(); }
  std::vector<int> local_ranks() const override { return {progress_.rank()}; }
  bool is_main_process() const override { return progress_.rank() == 0; }
  void run(const std::function<void(RankContext&)>& fn) override;
  bool failure_reported() const override { return reported_.load(); }

 private:
  friend class ProcessChannel;
  friend class ProcessHandle;
  void rank_main(const std::function<void(RankContext&)>& fn);
  void wait_for_all();
  void fail(const std::exception_ptr& error);
  void on_abort(bool own);
  std::unique_ptr<Watchdog> start_watchdog();
  std::unique_ptr<Channel> make_channel(const std::string& name, const std::vector<int>& members, int rank_in_group,
                                        int instance);

  WorldOptions options_;
  Parker parker_;
  KeptTensors kept_;
  std::unique_ptr<RankCore> core_;
  std::mutex watchdog_mutex_;
  Watchdog* watchdog_ = nullptr;
  std::atomic<bool> reported_{false};
  std::atomic<bool> printed_{false};  // by this process
  std::int64_t run_ = 0;
  bool dead_ = false;  // a run has failed
  int spin_ = 0;
  int exceptions_ = std::uncaught_exceptions();
  Progress progress_;
};

}  // namespace megatron::comm
