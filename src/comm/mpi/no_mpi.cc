// Stands in for mpi_library.cc in builds without MPI.
#ifndef MEGATRON_WITH_MPI

#include "base/check.h"
#include "comm/mpi/transport.h"

namespace megatron::comm {

std::unique_ptr<Transport> open_mpi_transport() {
  throw ConfigError(
      "--distributed-backend mpi: this program was built without MPI; without a launcher ranks are threads");
}

}  // namespace megatron::comm

#endif
