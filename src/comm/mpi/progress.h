// The communication thread of a process: makes every call of the transport, drives operations, and spreads failures.
//
// A failure is claimed at process 0, which says who was first (one line is printed in the whole run); if process 0 does
// not answer within kClaimSeconds, the claimant speaks for itself. All processes then get an abort note.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/abort.h"
#include "comm/mpi/process_operation.h"
#include "comm/mpi/transport.h"
#include "comm/mpi/wire.h"
#include "comm/watchdog.h"

namespace megatron::comm {

class Progress {
 public:
  struct Means {
    TransportFactory open;
    std::int64_t max_bytes = Transport::kMaxBytes;
    std::function<RankRecord()> record;      // of the rank of this process
    std::function<void()> wake;              // after anything that the rank may wait for
    std::function<void(bool own)> on_abort;  // once, after abort() holds the culprit; `own`: it is ours
  };

  /// Starts the thread and waits until all processes have joined. Throws what `open` throws.
  explicit Progress(Means means);
  /// Closes the transport unless the run has been aborted.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int ranks_on_this_machine() const { return ranks_on_machine_; }

  // From any thread:
  AbortState& abort() { return abort_; }
  void post(std::shared_ptr<ProcessOperation> operation);
  /// Claims the failure; abort() follows soon. `print` is what the claimant prints if it is the first.
  void fail(const Culprit& culprit, const std::exception_ptr& error, std::string print);
  /// What to print for the culprit of this process; meaningful in on_abort(true).
  std::string print_text();
  /// Run number `run` of the world begins.
  void begin_run(std::int64_t run);
  /// Tells all that the rank function of this process has returned from run number `run`.
  void finish(std::int64_t run);
  bool all_finished(std::int64_t run);
  /// Asks all processes what they do; waits at most `seconds`.
  std::vector<RankRow> collect_rows(double seconds);
  /// After an abort: waits (at most `seconds`) until the news is out and no transfer touches the rank's tensors any
  /// more.
  void wait_until_quiet(double seconds);
  /// Ends all processes by the transport's abort. Does not return.
  void abort_all(int exit_status);

 private:
  struct Claim {
    Culprit culprit;
    std::exception_ptr error;
    std::string print;
  };
  using OperationId = std::pair<std::uint64_t, std::int64_t>;
  using MailboxId = std::pair<std::uint64_t, int>;  // group, sender
  struct Mailbox {
    std::deque<Note> notes;
    std::deque<std::shared_ptr<ProcessOperation>> receives;
  };

  void thread_main();
  void loop();
  bool round();
  void rest(int idle_rounds);
  bool may_stop(int idle_rounds);
  void drain();
  void become_quiet();
  bool take_requests();
  void start(std::shared_ptr<ProcessOperation> operation);
  void deliver(ProcessOperation& operation, int member, const Note& note);
  void match(Mailbox& mailbox);
  bool take_notes();
  void take_note(int from, Note& note);
  void take_operation_note(int from, Note& note);
  bool step_operations();
  void check_missing();
  bool handle_claim();
  void decide(const Culprit& culprit, int exit_status, bool own, bool spread);
  void fail_here(const std::string& operation, const std::exception_ptr& error);
  void broadcast(const Note& note);

  Means means_;
  AbortState abort_;
  int rank_ = 0, size_ = 1, ranks_on_machine_ = 1;

  // Requests of other threads, and the answers.
  std::mutex mutex_;
  std::condition_variable wake_;      // the communication thread
  std::condition_variable answered_;  // those who wait for it
  std::vector<std::shared_ptr<ProcessOperation>> posted_;
  std::optional<Claim> claim_;
  bool claim_sent_ = false;
  std::int64_t run_ = 0;  // the one under way
  std::set<std::int64_t> finish_runs_;
  std::map<std::int64_t, std::set<int>> finished_;  // run → ranks
  std::optional<std::int64_t> status_question_;
  std::int64_t status_number_ = 0;
  std::map<int, RankRecord> status_answers_;
  std::optional<int> abort_all_status_;
  bool opened_ = false, quiet_ = false, stop_ = false;
  std::exception_ptr open_error_;

  // Of the communication thread alone.
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Wire> wire_;
  std::vector<std::shared_ptr<ProcessOperation>> active_;
  std::map<OperationId, std::shared_ptr<ProcessOperation>> collectives_;
  std::map<OperationId, std::vector<std::pair<int, Note>>> early_;
  std::map<MailboxId, Mailbox> mailboxes_;
  bool check_missing_ = false;
  int claim_judge_ = 0;  // who is asked to decide
  std::chrono::steady_clock::time_point claim_time_, abort_time_;
  bool drained_ = false;
  std::vector<std::unique_ptr<std::byte[]>> drain_buffers_;
  std::vector<Transport::Ticket> drains_;

  std::thread thread_;
};

}  // namespace megatron::comm
