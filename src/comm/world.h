// All ranks of a run, wherever they live: threads of this process (local), MPI processes, or counted only (null).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/fault_plan.h"

namespace megatron::comm {

/// Bytes that one rank put on the wire, by group name and operation: what the cost formulas promise.
/// Counted alike in every world: all_reduce 2·(n−1)/n·bytes, reduce_scatter and all_gather (n−1)/n·bytes of the whole,
/// all_to_all bytes sent to others, broadcast bytes (root: n−1 times… see each world's header), send bytes.
struct TrafficCounters {
  std::map<std::string, std::map<std::string, std::int64_t>> bytes;  // [group name][operation]
};

/// What rank code gets: its global rank and the means to make groups. Lives on the rank's thread.
class RankContext {
 public:
  virtual ~RankContext() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// Ranks that share this machine's cores with us (for the default number of threads).
  virtual int ranks_on_this_machine() const = 0;
  /// A communicator over `members` (global ranks, ascending, containing this rank). All members must create their groups
  /// in the same order with the same name. No communication for size 1.
  virtual std::shared_ptr<Communicator> create_group(const std::string& name, const std::vector<int>& members) = 0;
  virtual TrafficCounters& traffic() = 0;
  /// What the rank is doing beyond communication (instruction, iteration), for the watchdog's table. Cheap.
  virtual void note_progress(std::string_view what, std::int64_t iteration) = 0;
};

struct WorldOptions {
  int world_size = 1;
  double timeout_seconds = 600;  // watchdog: without progress for that long, print the table of all ranks and abort
  FaultPlan faults;
  std::uint64_t perturb_seed = 0;  // ≠ 0: yield at random at post and wait (tests)
};

class World {
 public:
  virtual ~World() = default;
  virtual int world_size() const = 0;
  /// Global ranks that live in this process.
  virtual std::vector<int> local_ranks() const = 0;
  /// True in the process that prints and writes logs.
  virtual bool is_main_process() const = 0;
  /// Runs fn on a thread per local rank and waits for all. The first exception anywhere wins: all others are woken with
  /// a CommError naming the culprit, and run() rethrows the culprit's own error (in other processes: a CommError naming
  /// rank, operation and message). A world is dead after an abort.
  virtual void run(const std::function<void(RankContext&)>& fn) = 0;
};

/// Ranks as threads of this process.
std::unique_ptr<World> create_local_world(const WorldOptions& options);
/// Ranks as processes started by mpirun or srun. Throws ConfigError where MPI cannot be loaded.
std::unique_ptr<World> create_mpi_world(const WorldOptions& options);
/// One rank of a world of any size, with meta tensors: keys are checked, bytes counted, nothing moves. run() calls fn
/// for `rank` alone.
std::unique_ptr<World> create_null_world(const WorldOptions& options, int rank);

/// Set by the environment of mpirun, srun or another PMI launcher: number of processes, or 0 without launcher.
int launcher_world_size();

}  // namespace megatron::comm
