// The notes of Progress: what comes in is handed on, failures are claimed, decided and spread, progress is asked for.
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "comm/mpi/progress.h"

namespace megatron::comm {

namespace {
// A process looks at its notes every few milliseconds; a silent one may be dead.
constexpr double kClaimSeconds = 0.3;
// How many are asked before a claimant decides himself: together less than the second in which all must hear of it.
constexpr int kJudges = 3;

}  // namespace

std::vector<RankRow> Progress::collect_rows(double seconds) {
  std::vector<RankRow> rows;
  std::unique_lock lock(mutex_);
  status_answers_.clear();
  status_question_ = ++status_number_;
  wake_.notify_all();
  answered_.wait_for(lock, std::chrono::duration<double>(seconds),
                     [this] { return static_cast<int>(status_answers_.size()) == size_ - 1 || abort_.aborted(); });
  for (int r = 0; r < size_; ++r) {
    RankRow row;
    row.rank = r;
    const auto answer = status_answers_.find(r);
    row.known = r == rank_ || answer != status_answers_.end();
    if (r == rank_)
      row.record = means_.record();
    else if (row.known)
      row.record = answer->second;
    rows.push_back(std::move(row));
  }
  return rows;
}

bool Progress::take_notes() {
  bool any = false;
  int from = 0;
  std::vector<std::byte> bytes;
  // A bound, so that a flood of notes does not starve the operations.
  for (int i = 0; i < 64 && transport_->next_note(from, bytes); ++i) {
    any = true;
    Note note = decode(bytes, from);
    take_note(from, note);
  }
  return any;
}

void Progress::take_note(int from, Note& note) {
  switch (note.kind) {
    case NoteKind::collective:
    case NoteKind::message:
      take_operation_note(from, note);
      break;
    case NoteKind::claim:
      // We are asked to decide; our own claims go through handle_claim().
      decide(note.culprit, note.exit_status, false, true);
      break;
    case NoteKind::abort: {
      bool own = false;
      {
        const std::lock_guard lock(mutex_);
        own = claim_ && note.culprit.rank == rank_;
      }
      decide(note.culprit, note.exit_status, own, false);
      break;
    }
    case NoteKind::status_request: {
      Note answer;
      answer.kind = NoteKind::status;
      answer.number = note.number;
      answer.record = means_.record();
      wire_->send_note(from, answer);
      break;
    }
    case NoteKind::status: {
      const std::lock_guard lock(mutex_);
      if (note.number == status_number_) status_answers_[from] = note.record;
      answered_.notify_all();
      break;
    }
    case NoteKind::finished: {
      {
        const std::lock_guard lock(mutex_);
        finished_[note.number].insert(from);
      }
      check_missing_ = true;
      means_.wake();
      break;
    }
  }
}

void Progress::take_operation_note(int from, Note& note) {
  if (abort_.aborted()) return;
  if (note.kind == NoteKind::message) {
    Mailbox& mailbox = mailboxes_[{note.group, from}];
    mailbox.notes.push_back(std::move(note));
    match(mailbox);
    return;
  }
  const OperationId id{note.group, note.sequence};
  const auto operation = collectives_.find(id);
  if (operation == collectives_.end())
    early_[id].emplace_back(from, std::move(note));
  else
    deliver(*operation->second, from, note);
}

void Progress::fail_here(const std::string& operation, const std::exception_ptr& error) {
  const Culprit culprit{rank_, operation, message_of(error)};
  fail(culprit, error, str_cat("error: ", failure_line(culprit), "\n"));
}

// One process decides which failure was the first, so that one line is printed: process 0, or the next one if it does
// not answer, and so on.
bool Progress::handle_claim() {
  Claim claim;
  {
    const std::lock_guard lock(mutex_);
    if (!claim_) return false;
    if (abort_.aborted()) {
      claim_sent_ = false;
      return false;
    }
    if (claim_sent_ && seconds_since(claim_time_) < kClaimSeconds) return false;
    claim = *claim_;
  }
  const int status = exit_status_of(claim.error);
  claim_judge_ = claim_sent_ ? claim_judge_ + 1 : 0;
  if (rank_ == claim_judge_ || claim_judge_ == kJudges) {
    decide(claim.culprit, status, true, true);
    return true;
  }
  Note note;
  note.kind = NoteKind::claim;
  note.culprit = claim.culprit;
  note.exit_status = status;
  wire_->send_note(claim_judge_, note);
  claim_time_ = Clock::now();
  const std::lock_guard lock(mutex_);
  claim_sent_ = true;
  return true;
}

// The first decision stands. Whoever takes it without having been told spreads it.
void Progress::decide(const Culprit& culprit, int exit_status, bool own, bool spread) {
  if (abort_.aborted()) return;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    if (own && claim_) error = claim_->error;
    claim_sent_ = false;
  }
  if (error == nullptr) {
    const std::string line = failure_line(culprit);
    error = exit_status == 2   ? std::make_exception_ptr(ConfigError(line))
            : exit_status == 3 ? std::make_exception_ptr(CommError(line))
                               : std::make_exception_ptr(Error(line));
  }
  if (spread) {
    Note note;
    note.kind = NoteKind::abort;
    note.culprit = culprit;
    note.exit_status = exit_status;
    broadcast(note);
  }
  abort_time_ = Clock::now();
  abort_.abort(culprit, error, exit_status);
  answered_.notify_all();
  means_.on_abort(own);
}

void Progress::broadcast(const Note& note) {
  for (int to = 0; to < size_; ++to)
    if (to != rank_) wire_->send_note(to, note);
}

}  // namespace megatron::comm
