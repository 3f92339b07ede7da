#include "cli/run_parsing.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "comm/world.h"

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

int exit_status(const std::exception& error) {
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return 2;
  return dynamic_cast<const CommError*>(&error) != nullptr ? 3 : 1;
}

int tell_once(const std::exception& error, const std::atomic<int>* signal) {
  if (is_first_process()) throw;
  const auto ended = [&] { return signal != nullptr && signal->load() != 0; };
  for (int i = 0; i < 200 && !ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (!ended()) std::fprintf(stderr, "rank %s: %s\n", process_number().c_str(), error.what());
  return exit_status(error);
}

}  // namespace megatron::cli
