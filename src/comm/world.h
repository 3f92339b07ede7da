// All ranks of a run, wherever they live: threads of this process (local), MPI processes, or counted only (null).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/trace.h"
#include "comm/communicator.h"
#include "comm/fault_plan.h"

namespace megatron::comm {

/// Bytes that one rank put on the wire, by group name and operation: what the cost formulas promise.
/// Counted alike in every world, when the operation is posted, in integers (divisions round down), n = size of the
/// group:
///   all_reduce      2·(n−1)·bytes / n                     reduce_scatter, all_gather  (n−1)·bytes of the whole / n
///   all_to_all      bytes of the rows sent to others      broadcast  root: (n−1)·bytes, others: 0
///   send            bytes                                 receive, barrier  0
/// Groups of size 1 count nothing; entries exist only for operations that moved something.
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
  /// A communicator over `members` (global ranks, ascending, containing this rank). All members must create their
  /// groups in the same order with the same name. No communication for size 1.
  virtual std::shared_ptr<Communicator> create_group(const std::string& name, const std::vector<int>& members) = 0;
  virtual TrafficCounters& traffic() = 0;
  /// What the rank is doing beyond communication (instruction, iteration), for the watchdog's table. Cheap.
  virtual void note_progress(std::string_view what, std::int64_t iteration) = 0;
  /// Where the operations of this rank's groups record their posts and waits, from now on; null: nowhere. Borrowed.
  virtual void set_trace(Trace* trace) = 0;
};

/// Where a run failed first: one line for the log.
struct Culprit {
  int rank = -1;
  std::string operation;  // what the rank was doing: group, operation, number, label; or its instruction
  std::string message;    // the error's own text
};

/// "rank 2, all_gather #12 \"qkv\" in tp: message"
std::string failure_line(const Culprit& culprit);

struct WorldOptions {
  int world_size = 1;
  double timeout_seconds = 600;  // watchdog: without progress for that long, print the table of all ranks and abort
  std::string timeout_option = "--distributed-timeout-minutes";  // that set it, for the table's headline
  FaultPlan faults;
  std::uint64_t perturb_seed = 0;  // ≠ 0: yield at random at post and wait (tests)
  double grace_seconds = 2;        // after an abort: ranks that are not back by then are ended with the process
  bool print_failure = true;       // the failure line and the watchdog's table on stderr
  /// ≠ 0 asks the run to stop (null: never). Ranks look at it themselves; here it means that a rank whose peer's
  /// process is silent has nothing to wait for: the world is aborted instead of after the timeout.
  const std::atomic<int>* stop_signal = nullptr;
  /// Called once in every process when the world has been aborted, by any thread; must not throw.
  std::function<void()> on_failure;
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
  /// a CommError naming the culprit, and run() rethrows the culprit's own error (in other processes: an error of
  /// the same exit status that names rank, operation and message). A world is dead after an abort.
  /// The failure line goes to stderr once, in the culprit's process, as soon as it happens: callers need not print the
  /// exception again (failure_reported()). A process whose ranks are not back after grace_seconds ends by _Exit with
  /// the status that belongs to the culprit's error: 2 configuration, 3 communication, 1 else.
  virtual void run(const std::function<void(RankContext&)>& fn) = 0;
  /// True after a run() that failed, when its line has been printed here or in the culprit's process.
  virtual bool failure_reported() const = 0;
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
