#include "comm/watchdog.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/clock.h"

namespace megatron::comm {

namespace {

const char* phase_name(RankPhase phase) {
  switch (phase) {
    case RankPhase::running:
      return "running";
    case RankPhase::posting:
      return "posting";
    case RankPhase::waiting:
      return "waiting";
    case RankPhase::finished:
      return "finished";
    case RankPhase::failed:
      return "failed";
  }
  return "?";
}

std::string one_decimal(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

// A process that lives answers within milliseconds; between questions to all a run with long steps has some rest.
constexpr double kQuestionSeconds = 5;

std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += str_cat(text.empty() ? "rank " : ", ", rank);
  return text;
}

// Ranks that are in no operation: those the others wait for.
std::string absent_ranks(const std::vector<RankRow>& rows) {
  std::string text;
  for (const RankRow& row : rows) {
    const RankPhase phase = row.record.phase;
    if (row.known && (phase == RankPhase::waiting || phase == RankPhase::finished)) continue;
    text += str_cat(text.empty() ? "rank " : ", ", row.rank);
  }
  return text;
}

}  // namespace

std::string progress_table(const std::vector<RankRow>& rows) {
  std::string text;
  char line[96];
  std::snprintf(line, sizeof(line), "%6s  %-9s %10s  %9s  ", "rank", "state", "since", "iteration");
  text += std::string(line) + "instruction / operation\n";
  for (const RankRow& row : rows) {
    if (!row.known) {
      std::snprintf(line, sizeof(line), "%6d  %-9s", row.rank, "silent");
      text += std::string(line) + " its process does not answer\n";
      continue;
    }
    const RankRecord& record = row.record;
    std::snprintf(line, sizeof(line), "%6d  %-9s %10s  %9lld  ", row.rank, phase_name(record.phase),
                  one_decimal(record.seconds).c_str(), static_cast<long long>(record.iteration));
    text += std::string(line) + (record.instruction.empty() ? "-" : record.instruction) + " / " +
            (record.operation.empty() ? "-" : record.operation) + "\n";
  }
  return text;
}

Watchdog::Watchdog(Means means, const AbortState& abort)
    : means_(std::move(means)), abort_(abort), waited_(means_.ranks.size()), thread_([this] { loop(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::notify() {
  {
    const std::lock_guard lock(mutex_);
    notified_ = true;
  }
  wake_.notify_all();
}

void Watchdog::loop() {
  const double tick = std::clamp(std::min(means_.timeout_seconds, means_.grace_seconds) / 20, 0.01, 0.25);
  Clock::time_point last = Clock::now();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::duration<double>(tick), [this] { return stop_ || notified_; });
      if (stop_) return;
      notified_ = false;
    }
    const Clock::time_point now = Clock::now();
    look(std::min(std::chrono::duration<double>(now - last).count(), 2 * tick));
    last = now;
  }
}

void Watchdog::look(double elapsed) {
  if (abort_.aborted()) {
    since_abort_ += elapsed;
    if (since_abort_ >= means_.grace_seconds) end_after_grace();
    return;
  }
  if (expired_) {
    // The world did not even manage to abort.
    since_expired_ += elapsed;
    if (since_expired_ < means_.grace_seconds + 1) return;
    if (means_.print) std::fputs(str_cat("error: ", failure_line(*expired_), "\n").c_str(), stderr);
    means_.end_process(3);
  }
  if (means_.stop_signal != nullptr && means_.stop_signal->load() != 0) {
    look_for_silent(elapsed);
    if (abort_.aborted() || expired_) return;
  }
  for (std::size_t i = 0; i < means_.ranks.size(); ++i) {
    const RankRecord record = means_.ranks[i].second->record();
    Waited& waited = waited_[i];
    if (record.phase != RankPhase::waiting || record.serial != waited.serial) {
      waited = {record.serial, 0};
      continue;
    }
    waited.seconds += elapsed;
    if (waited.seconds < means_.timeout_seconds) continue;
    expire(means_.ranks[i].first, record, waited.seconds);
    return;
  }
}

// Who has been asked to stop and waits for a process that has died would wait until it is killed itself. Two questions
// without an answer from the same process are enough.
void Watchdog::look_for_silent(double elapsed) {
  const auto& [rank, status] = means_.ranks.front();
  const RankRecord record = status->record();
  until_question_ -= elapsed;
  if (record.phase != RankPhase::waiting || record.seconds < 0.3 || until_question_ > 0) return;
  std::vector<int> silent;
  for (const RankRow& row : means_.all_rows())
    if (!row.known) silent.push_back(row.rank);
  std::vector<int> still;
  std::set_intersection(silent.begin(), silent.end(), silent_.begin(), silent_.end(), std::back_inserter(still));
  silent_ = std::move(silent);
  until_question_ = silent_.empty() ? kQuestionSeconds : 0;
  if (still.empty() || abort_.aborted()) return;
  const Culprit culprit{rank, record.where(),
                        str_cat("asked to stop, but the process of ", rank_list(still),
                                " does not answer: ending now, without a checkpoint")};
  expired_ = culprit;
  means_.fail(culprit, std::make_exception_ptr(CommError(failure_line(culprit))), "");
}

void Watchdog::expire(int rank, const RankRecord& record, double seconds) {
  const std::vector<RankRow> rows = means_.all_rows();
  if (abort_.aborted()) return;  // a failure elsewhere came first
  const std::string absent = absent_ranks(rows);
  const std::string table = str_cat("watchdog: ", absent.empty() ? "" : absent + " in no operation or silent; ",
                                    "rank ", rank, " has waited for ", one_decimal(seconds), " (",
                                    means_.timeout_option, "); all ranks:\n", progress_table(rows));
  const Culprit culprit{rank, record.where(),
                        str_cat("no progress for ", one_decimal(seconds), " (watchdog)",
                                absent.empty() ? "" : "; in no operation or silent: " + absent)};
  expired_ = culprit;
  means_.fail(culprit, std::make_exception_ptr(CommError(failure_line(culprit))), table);
}

void Watchdog::end_after_grace() {
  if (means_.print) {
    std::string ranks;
    for (const auto& [rank, status] : means_.ranks) {
      const RankRecord record = status->record();
      if (record.phase == RankPhase::finished || record.phase == RankPhase::failed) continue;
      ranks += str_cat(ranks.empty() ? "" : "; ", "rank ", rank, " (", record.where(), ")");
    }
    const std::string text = str_cat("error: not back ", one_decimal(means_.grace_seconds),
                                     " after the failure: ", ranks, "; ending the process\n");
    std::fputs(text.c_str(), stderr);
  }
  std::fflush(stderr);
  means_.end_process(abort_.exit_status());
}

}  // namespace megatron::comm
