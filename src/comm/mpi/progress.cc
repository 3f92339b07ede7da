#include "comm/mpi/progress.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"

namespace megatron::comm {

namespace {
// A word to the waiting user when the other processes are slow to come.
constexpr double kJoinNoticeSeconds = 10;

}  // namespace

Progress::Progress(Means means)
    : means_(std::move(means)), abort_([this] { means_.wake(); }), thread_([this] { thread_main(); }) {
  std::unique_lock lock(mutex_);
  if (!answered_.wait_for(lock, std::chrono::duration<double>(kJoinNoticeSeconds), [this] { return opened_; }))
    std::fputs("still waiting for all processes to join MPI\n", stderr);
  answered_.wait(lock, [this] { return opened_; });
  if (open_error_ == nullptr) return;
  lock.unlock();
  thread_.join();
  std::rethrow_exception(open_error_);
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Progress::post(std::shared_ptr<ProcessOperation> operation) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(operation));
  }
  wake_.notify_all();
}

void Progress::fail(const Culprit& culprit, const std::exception_ptr& error, std::string print) {
  {
    const std::lock_guard lock(mutex_);
    if (claim_ || abort_.aborted()) return;
    claim_ = Claim{culprit, error, std::move(print)};
  }
  wake_.notify_all();
}

std::string Progress::print_text() {
  const std::lock_guard lock(mutex_);
  return claim_ ? claim_->print : std::string();
}

void Progress::begin_run(std::int64_t run) {
  const std::lock_guard lock(mutex_);
  run_ = run;
}

void Progress::finish(std::int64_t run) {
  {
    const std::lock_guard lock(mutex_);
    finish_runs_.insert(run);
    finished_[run].insert(rank_);
  }
  wake_.notify_all();
}

bool Progress::all_finished(std::int64_t run) {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(finished_[run].size()) == size_;
}

void Progress::wait_until_quiet(double seconds) {
  std::unique_lock lock(mutex_);
  answered_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return quiet_; });
}

void Progress::abort_all(int exit_status) {
  {
    const std::lock_guard lock(mutex_);
    abort_all_status_ = exit_status;
  }
  wake_.notify_all();
  // The transport ends this process too; not if its thread hangs inside a call.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::_Exit(exit_status);
}

void Progress::thread_main() {
  try {
    transport_ = means_.open();
    rank_ = transport_->rank();
    size_ = transport_->size();
    ranks_on_machine_ = transport_->ranks_on_this_machine();
    wire_ = std::make_unique<Wire>(*transport_, means_.max_bytes);
  } catch (...) {
    open_error_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    opened_ = true;
  }
  answered_.notify_all();
  if (open_error_ != nullptr) return;
  loop();
  // After an abort some process may never come to the end: no orderly close.
  if (!abort_.aborted()) transport_->close();
}

void Progress::loop() {
  int idle_rounds = 0;
  for (;;) {
    bool progress = false;
    try {
      progress = round();
    } catch (...) {
      fail_here("in the communication thread", std::current_exception());
    }
    idle_rounds = progress ? 0 : idle_rounds + 1;
    if (may_stop(idle_rounds)) return;
    if (!progress) rest(idle_rounds);
  }
}

// After an abort: at once. Else when everything has gone out, or nothing moves any more.
bool Progress::may_stop(int idle_rounds) {
  {
    const std::lock_guard lock(mutex_);
    if (!stop_) return false;
    if (abort_.aborted()) return true;
    if (!posted_.empty() || !finish_runs_.empty()) return false;  // asked for since the round began
  }
  if (!drained_) {
    drained_ = true;
    drain();
  }
  wire_->test(drains_);
  return (wire_->notes_sent() && active_.empty() && drains_.empty()) || idle_rounds > 200;
}

// Messages that nobody has received would keep their senders from an orderly close.
void Progress::drain() {
  for (auto& [id, mailbox] : mailboxes_) {
    for (const Note& note : mailbox.notes) {
      if (note.tag < 0) continue;
      drain_buffers_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(note.bytes)));
      wire_->receive(id.second, note.tag, drain_buffers_.back().get(), note.bytes, drains_);
    }
  }
}

bool Progress::round() {
  bool progress = take_requests();
  if (abort_.aborted()) {
    const std::lock_guard lock(mutex_);
    if (quiet_) return false;
  }
  progress |= take_notes();
  progress |= handle_claim();
  if (!abort_.aborted()) {
    progress |= step_operations();
    if (check_missing_) check_missing();
  }
  progress |= wire_->sweep_notes();
  if (abort_.aborted()) become_quiet();
  return progress;
}

// Once the news is out no more calls of the transport are made: one of them could still write into a tensor.
void Progress::become_quiet() {
  if (!wire_->notes_sent() && seconds_since(abort_time_) < 0.5) return;
  const std::lock_guard lock(mutex_);
  quiet_ = true;
  answered_.notify_all();
}

// Yields first, for an answer is often near; then sleeps, longer and longer, and is woken by whoever posts.
void Progress::rest(int idle_rounds) {
  const bool active = (!active_.empty() && !abort_.aborted()) || !wire_->notes_sent() || claim_sent_;
  if (active && idle_rounds < 30) {
    std::this_thread::yield();
    return;
  }
  const int longest = active ? 500 : 3000;
  const int sleep = std::min(longest, 20 << std::min((idle_rounds - (active ? 30 : 0)) / 4, 8));
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, std::chrono::microseconds(sleep), [this] {
    return stop_ || !posted_.empty() || (claim_ && !claim_sent_ && !abort_.aborted()) || !finish_runs_.empty() ||
           status_question_ || abort_all_status_;
  });
}

bool Progress::take_requests() {
  std::vector<std::shared_ptr<ProcessOperation>> posted;
  std::set<std::int64_t> finish_runs;
  std::optional<std::int64_t> question;
  {
    const std::lock_guard lock(mutex_);
    if (abort_all_status_) transport_->abort(*abort_all_status_);
    posted.swap(posted_);
    finish_runs.swap(finish_runs_);
    question.swap(status_question_);
  }
  if (abort_.aborted()) return false;
  for (auto& operation : posted) start(std::move(operation));
  for (const std::int64_t run : finish_runs) {
    Note note;
    note.kind = NoteKind::finished;
    note.number = run;
    broadcast(note);
  }
  if (question) {
    Note note;
    note.kind = NoteKind::status_request;
    note.number = *question;
    broadcast(note);
  }
  return !posted.empty() || !finish_runs.empty() || question.has_value();
}

void Progress::start(std::shared_ptr<ProcessOperation> operation) {
  ProcessOperation& op = *operation;
  active_.push_back(operation);
  check_missing_ = true;
  try {
    op.start(*wire_);
  } catch (...) {
    fail_here(operation_text(op.group().name, op.sequence(), op.kind(), op.key().label), std::current_exception());
    return;
  }
  if (op.kind() == OperationKind::send) return;
  if (op.kind() == OperationKind::receive) {
    Mailbox& mailbox = mailboxes_[{op.group().id, op.group().global(op.peer())}];
    mailbox.receives.push_back(std::move(operation));
    match(mailbox);
    return;
  }
  const OperationId id{op.group().id, op.sequence()};
  collectives_[id] = operation;
  const auto early = early_.find(id);
  if (early == early_.end()) return;
  const auto notes = std::move(early->second);
  early_.erase(early);
  for (const auto& [from, note] : notes) deliver(op, from, note);
}

void Progress::deliver(ProcessOperation& operation, int from, const Note& note) {
  const auto& members = operation.group().members;
  const auto member = std::lower_bound(members.begin(), members.end(), from) - members.begin();
  try {
    operation.on_note(*wire_, static_cast<int>(member), note);
  } catch (...) {
    fail_here(operation_text(operation.group().name, operation.sequence(), operation.kind(), operation.key().label),
              std::current_exception());
  }
}

void Progress::match(Mailbox& mailbox) {
  while (!mailbox.notes.empty() && !mailbox.receives.empty()) {
    const Note note = std::move(mailbox.notes.front());
    const auto receive = mailbox.receives.front();
    mailbox.notes.pop_front();
    mailbox.receives.pop_front();
    deliver(*receive, receive->group().global(receive->peer()), note);
  }
}

bool Progress::step_operations() {
  bool progress = false, done = false;
  for (const auto& operation : active_) {
    try {
      progress |= operation->step(*wire_);
    } catch (...) {
      fail_here(
          operation_text(operation->group().name, operation->sequence(), operation->kind(), operation->key().label),
          std::current_exception());
      return true;
    }
    if (!operation->done()) continue;
    done = true;
    if (!is_point_to_point(operation->kind())) collectives_.erase({operation->group().id, operation->sequence()});
  }
  if (done) {
    active_.erase(std::remove_if(active_.begin(), active_.end(), [](const auto& op) { return op->done(); }),
                  active_.end());
    means_.wake();
  }
  return progress;
}

// A rank whose function has returned posts nothing more: who waits for it waits for ever.
void Progress::check_missing() {
  check_missing_ = false;
  std::set<int> finished;
  {
    const std::lock_guard lock(mutex_);
    const auto it = finished_.find(run_);
    if (it != finished_.end()) finished = it->second;
  }
  if (finished.empty()) return;
  for (const auto& operation : active_) {
    const ProcessGroup& group = operation->group();
    for (int m = 0; m < group.size(); ++m) {
      const int rank = group.global(m);
      if (rank == rank_ || finished.count(rank) == 0 || !operation->misses(m)) continue;
      fail_here(operation_text(group.name, operation->sequence(), operation->kind(), operation->key().label),
                std::make_exception_ptr(
                    CommError(str_cat("rank ", rank_, " waits in group ", group.name, " for ", operation->key().text(),
                                      ", but rank ", rank, " has ended without it"))));
      return;
    }
  }
}

}  // namespace megatron::comm
