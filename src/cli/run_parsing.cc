#include "cli/run_parsing.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "comm/fault_plan.h"
#include "comm/world.h"
#include "config/option_table.h"
#include "spec/batch_schedule.h"

namespace megatron::cli {

std::optional<int> launcher_size() {
  const int size = comm::launcher_world_size();
  return size > 0 ? std::optional<int>(size) : std::nullopt;
}

namespace {

/// Number of this process among those of its launcher, as text; empty where unknown.
std::string process_number() {
  if (!launcher_size().has_value()) return "";
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name); rank != nullptr) return rank;
  return "";
}

}  // namespace

bool is_first_process() {
  const std::string number = process_number();
  return number.empty() || number == "0";
}

int tell_once(const std::exception& error, const std::atomic<int>* signal) {
  if (is_first_process()) throw;
  const auto ended = [&] { return signal != nullptr && signal->load() != 0; };
  for (int i = 0; i < 200 && !ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (!ended()) std::fprintf(stderr, "rank %s: %s\n", process_number().c_str(), error.what());
  return exit_status(error);
}

void print_notices(const config::ParsedRun& parsed) {
  if (!is_first_process()) return;
  for (const std::string& notice : parsed.notices) std::fprintf(stderr, "notice: %s\n", notice.c_str());
}

void check_faults(config::ParsedRun& parsed) {
  const spec::RunSpec& run = parsed.spec;
  if (!run.fault.inject_fault.has_value()) return;
  try {
    const comm::FaultPlan plan = comm::parse_fault_plan(*run.fault.inject_fault);
    if (plan.faults.empty()) throw ConfigError("--inject-fault: names no fault; leave it out");
    // Without training, iterations are those of a checkpoint.
    if (parsed.accepted())
      comm::check_fault_plan(plan, run.parallel.world_size,
                             run.batch.skip_train ? std::nullopt : spec::train_iterations(run.batch));
  } catch (const ConfigError& error) {
    parsed.errors.emplace_back(error.what());
  }
}

void refuse_described_options(const config::ParsedRun& parsed, std::initializer_list<std::string_view> also,
                              const std::string& reason) {
  const config::OptionTable table;
  std::string names;
  for (const std::string& name : parsed.given) {
    const config::Option* const option = table.find(name);
    // Options of other tables change nothing, options that are not built stand at their default: both are harmless.
    if (option == nullptr || !option->not_built.empty() || option->topic == "Parallelism") continue;
    if (name == "--seed" || name == "--inject-fault" || std::find(also.begin(), also.end(), name) != also.end())
      continue;
    names += (names.empty() ? "" : ", ") + name;
  }
  if (!names.empty()) throw ConfigError(names + ": " + reason);
}

}  // namespace megatron::cli
