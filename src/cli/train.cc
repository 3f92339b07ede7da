// megatron train: trains or continues a model.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/run_parsing.h"
#include "cli/vocabulary.h"
#include "config/derive.h"
#include "config/parse.h"
#include "spec/batch_schedule.h"
#include "train/output_file.h"
#include "train/run_log.h"
#include "train/signals.h"
#include "train/startup.h"
#include "train/trainer.h"

namespace megatron::cli {
namespace {

/// Largest peak of each kind of memory among the ranks of this process.
class PeakMemory {
 public:
  void add(const tensor::MemoryTracker& tracker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tracker.peak_total() < total_) return;
    total_ = tracker.peak_total();
    by_kind_.clear();
    for (std::size_t k = 0; k < tensor::kNumMemoryKinds; ++k) {
      const auto kind = static_cast<MemoryKind>(k);
      by_kind_.emplace_back(std::string(tensor::memory_kind_name(kind)), tracker.at_peak(kind));
    }
  }
  const metrics::MemoryByKind& by_kind() const { return by_kind_; }

 private:
  std::mutex mutex_;
  std::int64_t total_ = -1;
  metrics::MemoryByKind by_kind_;
};

train::Process make_process(config::ParsedRun& parsed, metrics::Console& console, bool print,
                            const std::atomic<int>& stop_signal) {
  train::Process process;
  process.stop_signal = &stop_signal;
  process.tokenizer = train::create_tokenizer(parsed.spec);
  if (process.tokenizer != nullptr) take_vocabulary(parsed, *process.tokenizer);
  process.run = parsed.spec;
  process.measure_peak = true;
  train::check_memory(process.run);
  if (print) console.line("opening the data");
  std::function<void(const std::string&)> say;
  if (print) say = [&console](const std::string& line) { console.line(line); };
  process.data = train::open_datasets(process.run, process.tokenizer.get(), data::requested_samples(process.run.batch),
                                      say, process.stop_signal);
  if (print) console.line(process.data.report.five_lines());
  return process;
}

/// A file that cannot be written is told before anything has been trained.
void check_outputs(const spec::RunSpec& run) {
  const std::vector<std::string> problems = train::output_problems(run);
  if (!problems.empty()) throw IoError(joined(problems, "\n"));
}

/// The last words of a run and its exit status.
int conclude(const train::TrainOutcome& outcome, const spec::RunSpec& run, metrics::Console& console, bool print) {
  switch (outcome.reason) {
    case train::EndReason::finished:
    case train::EndReason::exit_interval:
    case train::EndReason::exit_duration:
      return 0;
    case train::EndReason::not_finite:
      if (print) std::fprintf(stderr, "%s\n", outcome.error.c_str());
      return 1;
    case train::EndReason::signal:
      if (print) {
        const std::string saved = !outcome.saved_directory.empty()  ? "saved " + outcome.saved_directory
                                  : run.checkpoint.save.has_value() ? std::string("nothing new was saved")
                                                                    : std::string("nothing was saved (no --save)");
        console.line(str_cat("stopped by ", train::signal_name(outcome.signal), " after iteration ", outcome.iteration,
                             ", ", saved));
      }
      return 128 + outcome.signal;
  }
  return 1;
}

int train_in(comm::World& world, const train::Process& process, metrics::Console& console,
             train::SignalWatcher& signals) {
  const bool print = world.is_main_process();
  std::unique_ptr<train::RunLog> log;
  if (print) {
    const std::int64_t iterations = !spec::trains(process.run.batch) ? 0 : train::total_iterations(process.run);
    log = std::make_unique<train::RunLog>(process.run, iterations, console);
  }
  PeakMemory memory;
  train::TrainHooks hooks;
  hooks.at_end = [&](train::RankParts& parts) { memory.add(parts.exec().allocator().tracker()); };
  train::TrainOutcome outcome;
  try {
    outcome = train::run_training(world, process, log.get(), hooks);
  } catch (const Error& error) {
    if (!world.failure_reported()) throw;
    return exit_status(error);  // the line of the failed rank has been printed
  }
  signals.finish();
  if (print) {
    log->flush();
    log->summary(memory.by_kind());
  }
  return conclude(outcome, process.run, console, print);
}

}  // namespace

int run_train(Arguments args) {
  const bool print = is_first_process();
  train::SignalWatcher signals(print);  // before any other thread
  // mpirun gives its ranks a terminal of its own, whatever its output goes to, and stops reading it before it ends
  // them.
  metrics::Console console = launcher_size().has_value()
                                 ? metrics::Console(std::make_unique<metrics::LineWriter>(stdout))
                                 : metrics::Console(stdout);
  config::ParsedRun parsed;
  try {
    parsed = config::parse_run(args, {config::ParseMode::train, {}, launcher_size()});
    check_faults(parsed);
    config::require_accepted(parsed);
  } catch (const ConfigError& error) {
    return tell_once(error, &signals.flag());
  }
  if (print)
    for (const std::string& notice : parsed.notices) console.line("notice: " + notice);
  train::Process process;
  std::unique_ptr<comm::World> world;
  try {
    train::check_thread_ranks(parsed.spec);
    if (print) check_outputs(parsed.spec);
    process = make_process(parsed, console, print, signals.flag());
    world = train::create_world(process.run, process.stop_signal, [&signals] { signals.finish(); });
  } catch (const train::Interrupted& stop) {
    if (print) console.line(str_cat(stop.what(), "; the same command goes on with the tokens made so far"));
    return 128 + stop.signal();
  } catch (const Error& error) {
    return tell_once(error, &signals.flag());
  }
  return train_in(*world, process, console, signals);
}

}  // namespace megatron::cli
