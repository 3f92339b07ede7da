// Starts programs under mpirun from tests, on one machine or on two network namespaces that stand for two.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "comm/child_process.h"

namespace megatron::comm {

inline bool have_mpirun() { return run_command({"mpirun", "--version"}, {}, 20).exit_status == 0; }

/// Settings under which Open MPI runs as root and with more processes than cores.
inline std::vector<std::string> mpi_environment() {
  return {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_mpi_yield_when_idle=1",
          "OMPI_MCA_rmaps_base_oversubscribe=1"};
}

/// mpirun -n `processes` `program`…
inline ChildResult mpirun(int processes, const std::vector<std::string>& program, std::vector<std::string> environment,
                          double timeout_seconds) {
  std::vector<std::string> arguments = {"mpirun", "--oversubscribe", "-n", std::to_string(processes)};
  arguments.insert(arguments.end(), program.begin(), program.end());
  for (const std::string& entry : mpi_environment()) environment.push_back(entry);
  return run_command(arguments, environment, timeout_seconds);
}

/// This test program itself, running the body of tests/mpi/mpi_body_test.cc named `name`.
inline std::vector<std::string> own_body(const std::string& name) {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  MEGATRON_CHECK_GT(length, 0);
  return {std::string(path, static_cast<std::size_t>(length)), "--gtest_also_run_disabled_tests",
          "--gtest_filter=MpiBody.DISABLED_" + name};
}

inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace megatron::comm

#define MEGATRON_REQUIRE_MPIRUN()                                                             \
  do {                                                                                        \
    if (!::megatron::comm::have_mpirun()) GTEST_SKIP() << "mpirun is not installed or fails"; \
  } while (false)
