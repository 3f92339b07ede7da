#include "cli/run_parsing.h"

#include <cstdlib>
#include <string_view>

#include "comm/world.h"

namespace megatron::cli {

std::optional<int> launcher_size() {
  const int size = comm::launcher_world_size();
  return size > 0 ? std::optional<int>(size) : std::nullopt;
}

bool is_first_process() {
  if (!launcher_size().has_value()) return true;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name); rank != nullptr) return std::string_view(rank) == "0";
  return true;
}

int exit_status(const std::exception& error) {
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return 2;
  return dynamic_cast<const CommError*>(&error) != nullptr ? 3 : 1;
}

}  // namespace megatron::cli
