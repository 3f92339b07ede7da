#include "comm/local/local_world.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <system_error>
#include <thread>

namespace megatron::comm {

LocalWorld::LocalWorld(const WorldOptions& options)
    : options_(options), shared_(options.world_size, spin_for_ranks(options.world_size)) {
  for (int rank = 0; rank < options.world_size; ++rank) cores_.push_back(std::make_unique<RankCore>(rank, options));
}

std::vector<int> LocalWorld::local_ranks() const {
  std::vector<int> ranks(static_cast<std::size_t>(options_.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

LocalGroup& LocalWorld::group(const std::string& name, const std::vector<int>& members, int instance) {
  const std::lock_guard lock(groups_mutex_);
  auto& group = groups_[{{name, members}, instance}];
  if (group == nullptr) group = std::make_unique<LocalGroup>(shared_, name, members);
  return *group;
}

void LocalWorld::fail(int rank, const std::exception_ptr& error) {
  RankStatus& status = cores_[static_cast<std::size_t>(rank)]->status;
  const Culprit culprit{rank, status.record().where(), message_of(error)};
  status.end(RankPhase::failed);
  abort(culprit, error, "");
}

void LocalWorld::abort(const Culprit& culprit, const std::exception_ptr& error, const std::string& table) {
  if (!shared_.abort.abort(culprit, error, exit_status_of(error))) return;
  if (options_.print_failure) {
    const std::string line = str_cat(table, "error: ", failure_line(culprit), "\n");
    std::fputs(line.c_str(), stderr);
  }
  if (options_.on_failure) options_.on_failure();
  if (Watchdog* watchdog = watchdog_.load()) watchdog->notify();
}

std::unique_ptr<Watchdog> LocalWorld::start_watchdog() {
  Watchdog::Means means;
  means.timeout_seconds = options_.timeout_seconds;
  means.timeout_option = options_.timeout_option;
  means.grace_seconds = options_.grace_seconds;
  means.print = options_.print_failure;
  for (const auto& core : cores_) means.ranks.emplace_back(core->rank, &core->status);
  means.all_rows = [this] {
    std::vector<RankRow> rows;
    for (const auto& core : cores_) rows.push_back({core->rank, true, core->status.record()});
    return rows;
  };
  means.fail = [this](const Culprit& culprit, const std::exception_ptr& error, const std::string& table) {
    abort(culprit, error, table);
  };
  means.end_process = [](int status) { std::_Exit(status); };
  return std::make_unique<Watchdog>(std::move(means), shared_.abort);
}

void LocalWorld::run_rank(int rank, const std::function<void(RankContext&)>& fn) {
  RankCore& core = *cores_[static_cast<std::size_t>(rank)];
  try {
    CoreRankContext context(core, options_.world_size, options_.world_size,
                            [this](const std::string& name, const std::vector<int>& members, int rank_in_group,
                                   int instance) { return group(name, members, instance).channel(rank_in_group); });
    fn(context);
    core.status.end(RankPhase::finished);
    shared_.finished[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
    shared_.num_finished.fetch_add(1, std::memory_order_release);
    shared_.wake_all();
  } catch (...) {
    fail(rank, std::current_exception());
  }
  {
    // Others may still read this rank's tensors: let go only when nobody works any more.
    std::unique_lock lock(closing_mutex_);
    if (++at_end_ == options_.world_size) closing_.notify_all();
    closing_.wait(lock, [this] { return at_end_ == options_.world_size; });
  }
  shared_.kept[static_cast<std::size_t>(rank)].clear();
}

/// The machine has no thread for this rank and those behind it: the ranks that run must not wait for them.
void LocalWorld::not_started(int rank, const char* reason) {
  fail(rank, std::make_exception_ptr(
                 Error(str_cat("cannot start a thread for each of ", options_.world_size, " ranks: ", reason))));
  const std::lock_guard lock(closing_mutex_);
  at_end_ += options_.world_size - rank;
  closing_.notify_all();
}

void LocalWorld::run(const std::function<void(RankContext&)>& fn) {
  MEGATRON_CHECK(!shared_.abort.aborted(), "this world has been aborted");
  at_end_ = 0;
  shared_.num_finished.store(0);
  for (int rank = 0; rank < options_.world_size; ++rank) shared_.finished[static_cast<std::size_t>(rank)].store(false);
  groups_.clear();
  for (const auto& core : cores_) core->status.running();
  // One rank waits for nobody.
  std::unique_ptr<Watchdog> watchdog = options_.world_size > 1 ? start_watchdog() : nullptr;
  watchdog_.store(watchdog.get());
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < options_.world_size; ++rank)
      threads.emplace_back([this, rank, &fn] { run_rank(rank, fn); });
  } catch (const std::system_error& error) {
    not_started(static_cast<int>(threads.size()), error.what());
  }
  for (std::thread& thread : threads) thread.join();
  watchdog_.store(nullptr);
  watchdog.reset();
  if (shared_.abort.aborted()) std::rethrow_exception(shared_.abort.error());
}

std::unique_ptr<World> create_local_world(const WorldOptions& options) {
  MEGATRON_CHECK_GE(options.world_size, 1);
  return std::make_unique<LocalWorld>(options);
}

}  // namespace megatron::comm
