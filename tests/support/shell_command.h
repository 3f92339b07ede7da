// Runs a shell command and keeps what it said, for tests that call programs as a user would.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace megatron::testing {

struct CommandResult {
  int status = -1;     // exit status; -1 if the command could not be started or was ended by a signal
  std::string output;  // what the command line sends to standard output ("2>&1" for both streams)
};

inline CommandResult run_command(const std::string& command_line) {
  CommandResult result;
  std::FILE* const pipe = ::popen(command_line.c_str(), "r");
  if (pipe == nullptr) return result;
  char piece[4096];
  for (std::size_t n = 0; (n = std::fread(piece, 1, sizeof(piece), pipe)) > 0;) result.output.append(piece, n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

}  // namespace megatron::testing
