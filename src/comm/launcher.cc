// Finds out from the environment whether mpirun, srun or another PMI launcher started this process.
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "comm/world.h"

namespace megatron::comm {

namespace {
int number_in(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return 0;
  int number = 0;
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, number);
  return result.ec == std::errc() && result.ptr == end && number > 0 ? number : 0;
}
}  // namespace

int launcher_world_size() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const int size = number_in(name); size > 0) return size;
  // A step started by srun has SLURM_STEP_NUM_TASKS and SLURM_PROCID; so has the batch script itself, as a step of one
  // task. Only a PMI offered to the tasks (srun --mpi=pmix or pmi2) makes them one MPI world.
  const bool offers_pmi =
      std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr || std::getenv("PMI_FD") != nullptr;
  if (!offers_pmi || std::getenv("SLURM_STEP_ID") == nullptr) return 0;
  const int step_tasks = number_in("SLURM_STEP_NUM_TASKS");
  return step_tasks > 0 ? step_tasks : number_in("SLURM_NTASKS");
}

}  // namespace megatron::comm
