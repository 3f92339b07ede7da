#include "comm/world.h"
namespace megatron::comm {
std::unique_ptr<World> create_mpi_world(const WorldOptions&) {
  throw ConfigError("--distributed-backend mpi: this build has no MPI; the ranks of this machine run as threads");
}
}  // namespace megatron::comm
