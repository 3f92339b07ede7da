#include "comm/mpi/process_world.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

namespace megatron::comm {

/// The rank's end of an operation under way.
class ProcessHandle : public Operation {
 public:
  ProcessHandle(ProcessWorld& world, std::shared_ptr<ProcessOperation> operation, Request&& request)
      : world_(world), operation_(std::move(operation)) {
    if (request.input.defined()) tensors_.push_back(std::move(request.input));
    if (request.output.defined()) tensors_.push_back(std::move(request.output));
  }

  ~ProcessHandle() override {
    if (!operation_->done() && std::uncaught_exceptions() <= exceptions_) {
      try {
        wait();
      } catch (const std::exception&) {  // the world has been aborted; the next operation says so
      }
    }
    if (!operation_->done())
      world_.kept_.keep([operation = operation_] { return operation->done(); }, std::move(tensors_));
  }

  void wait() override {
    AbortState& abort = world_.progress_.abort();
    world_.parker_.wait([&] { return operation_->done() || abort.aborted(); }, world_.spin_);
    if (!operation_->done()) abort.check(world_.progress_.rank(), operation_->group().name, operation_->key().text());
  }

  bool ready() override {
    if (operation_->done()) return true;
    world_.progress_.abort().check(world_.progress_.rank(), operation_->group().name, operation_->key().text());
    return false;
  }

 private:
  ProcessWorld& world_;
  std::shared_ptr<ProcessOperation> operation_;
  std::vector<Tensor> tensors_;
  int exceptions_ = std::uncaught_exceptions();
};

class ProcessChannel : public Channel {
 public:
  ProcessChannel(ProcessWorld& world, std::shared_ptr<const ProcessGroup> group)
      : world_(world), group_(std::move(group)) {}

  std::unique_ptr<Operation> post(Request request) override {
    world_.progress_.abort().check(world_.progress_.rank(), group_->name, request.key.text());
    world_.kept_.sweep();
    const Tensor& any = request.output.defined() ? request.output : request.input;
    MEGATRON_CHECK(!any.defined() || !any.is_meta(), "processes exchange no tensors without memory");
    std::int64_t& sequence = is_point_to_point(request.kind) ? messages_ : collectives_;
    auto operation = make_process_operation(group_, sequence++, request);
    world_.progress_.post(operation);
    if (request.kind == OperationKind::send) return nullptr;  // it owns a copy
    return std::make_unique<ProcessHandle>(world_, std::move(operation), std::move(request));
  }

 private:
  ProcessWorld& world_;
  std::shared_ptr<const ProcessGroup> group_;
  std::int64_t collectives_ = 0, messages_ = 0;
};

namespace {
Progress::Means progress_means(TransportFactory open, std::int64_t max_bytes) {
  Progress::Means means;
  means.open = std::move(open);
  means.max_bytes = max_bytes;
  return means;
}
}  // namespace

ProcessWorld::ProcessWorld(const WorldOptions& options, TransportFactory open, std::int64_t max_bytes)
    : options_(options), core_(std::make_unique<RankCore>(0, options)), progress_([&] {
        Progress::Means means = progress_means(std::move(open), max_bytes);
        means.record = [this] { return core_->status.record(); };
        means.wake = [this] { parker_.wake(); };
        means.on_abort = [this](bool own) { on_abort(own); };
        return means;
      }()) {
  // Faults are of the rank, which only the transport knows. Nobody reads the record before a run.
  core_->rank = progress_.rank();
  core_->faults = FaultInjector(options.faults, progress_.rank());
  spin_ = spin_for_ranks(2 * progress_.ranks_on_this_machine());
  if (options.world_size == progress_.size()) return;
  if (launcher_world_size() == 0 && progress_.size() == 1)
    throw ConfigError(
        str_cat("--distributed-backend mpi: no launcher has started this process; start it with mpirun -n ",
                options.world_size, " or srun, or leave the option out: ranks are then threads"));
  throw ConfigError(str_cat("--world-size ", options.world_size, ": the launcher started ", progress_.size(),
                            " processes; leave the option out or give ", progress_.size()));
}

ProcessWorld::~ProcessWorld() {
  if (progress_.size() == 1 || progress_.abort().aborted() || std::uncaught_exceptions() <= exceptions_ || run_ == 0)
    return;
  // This process ends by an exception that did not come from run(): the others would wait for it.
  const Culprit culprit{progress_.rank(), "outside of the ranks' work", "the process ends because of an error"};
  progress_.fail(culprit, std::make_exception_ptr(Error(failure_line(culprit))), "");
  for (int i = 0; i < 1000 && !progress_.abort().aborted(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  progress_.wait_until_quiet(1);
}

void ProcessWorld::on_abort(bool own) {
  if (options_.print_failure) {
    if (own) std::fputs(progress_.print_text().c_str(), stderr);
    printed_.store(own);
    reported_.store(true);
  }
  if (options_.on_failure) options_.on_failure();
  const std::lock_guard lock(watchdog_mutex_);
  if (watchdog_ != nullptr) watchdog_->notify();
}

std::unique_ptr<Channel> ProcessWorld::make_channel(const std::string& name, const std::vector<int>& members,
                                                    int rank_in_group, int instance) {
  auto group = std::make_shared<ProcessGroup>();
  group->name = name;
  group->members = members;
  group->me = rank_in_group;
  group->id = group_id(str_cat(run_, " ", name), members, instance);
  return std::make_unique<ProcessChannel>(*this, std::move(group));
}

void ProcessWorld::fail(const std::exception_ptr& error) {
  const Culprit culprit{progress_.rank(), core_->status.record().where(), message_of(error)};
  core_->status.end(RankPhase::failed);
  progress_.fail(culprit, error, str_cat("error: ", failure_line(culprit), "\n"));
  AbortState& abort = progress_.abort();
  // Long enough for any answer; a communication thread that hangs must not keep the process.
  for (int i = 0; i < 2000 && !abort.aborted(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (abort.abort(culprit, error, exit_status_of(error))) on_abort(true);
}

// A run is over when all ranks are back: a failure elsewhere is a failure here.
void ProcessWorld::wait_for_all() {
  core_->status.enter(RankPhase::waiting, "world", run_, OperationKind::barrier, "end of the run");
  progress_.finish(run_);
  AbortState& abort = progress_.abort();
  parker_.wait([&] { return abort.aborted() || progress_.all_finished(run_); }, 0);
  if (!progress_.all_finished(run_)) abort.check(progress_.rank(), "world", "the end of the run");
}

void ProcessWorld::rank_main(const std::function<void(RankContext&)>& fn) {
  AbortState& abort = progress_.abort();
  try {
    // Another process may have failed before this one got here.
    abort.check(progress_.rank(), "world", "the start of the run");
    CoreRankContext context(*core_, progress_.size(), progress_.ranks_on_this_machine(),
                            [this](const std::string& name, const std::vector<int>& members, int rank_in_group,
                                   int instance) { return make_channel(name, members, rank_in_group, instance); });
    fn(context);
    wait_for_all();
    core_->status.end(RankPhase::finished);
  } catch (...) {
    if (abort.aborted())
      core_->status.end(RankPhase::failed);
    else
      fail(std::current_exception());
  }
  if (abort.aborted()) {
    progress_.wait_until_quiet(1);
    // The process that prints the failure shall end first: once another has ended, the launcher ends the rest and may
    // drop what they have just printed.
    if (!printed_.load()) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  kept_.clear();
}

std::unique_ptr<Watchdog> ProcessWorld::start_watchdog() {
  Watchdog::Means means;
  means.timeout_seconds = options_.timeout_seconds;
  means.timeout_option = options_.timeout_option;
  means.grace_seconds = options_.grace_seconds;
  means.print = options_.print_failure;
  means.stop_signal = options_.stop_signal;
  means.ranks.emplace_back(progress_.rank(), &core_->status);
  means.all_rows = [this] { return progress_.collect_rows(0.5); };
  means.fail = [this](const Culprit& culprit, const std::exception_ptr& error, const std::string& table) {
    progress_.fail(culprit, error, str_cat(table, "error: ", failure_line(culprit), "\n"));
  };
  means.end_process = [this](int status) { progress_.abort_all(status); };
  return std::make_unique<Watchdog>(std::move(means), progress_.abort());
}

void ProcessWorld::run(const std::function<void(RankContext&)>& fn) {
  MEGATRON_CHECK(!dead_, "this world has been aborted");
  progress_.begin_run(++run_);
  core_->status.running();
  std::unique_ptr<Watchdog> watchdog = progress_.size() > 1 ? start_watchdog() : nullptr;
  {
    const std::lock_guard lock(watchdog_mutex_);
    watchdog_ = watchdog.get();
  }
  std::thread rank([this, &fn] { rank_main(fn); });
  rank.join();
  {
    const std::lock_guard lock(watchdog_mutex_);
    watchdog_ = nullptr;
  }
  watchdog.reset();
  dead_ = progress_.abort().aborted();
  if (dead_) std::rethrow_exception(progress_.abort().error());
}

std::unique_ptr<World> create_mpi_world(const WorldOptions& options) {
  return std::make_unique<ProcessWorld>(options, open_mpi_transport);
}

}  // namespace megatron::comm
