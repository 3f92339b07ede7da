// Runs a function or a command in a child process, with its output caught and a limit on its time.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"

namespace megatron::comm {

struct ChildResult {
  bool timed_out = false;  // it was killed, with its whole process group
  bool stopped = false;    // it stopped itself (SIGSTOP), and was then killed
  int exit_status = -1;    // −1: ended by a signal
  int signal = 0;
  std::string output;  // stdout and stderr
};

namespace child_detail {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Reads until all writers have closed the pipe or the child has stopped or time is up.
inline ChildResult watch(pid_t child, int output, double timeout_seconds) {
  ChildResult result;
  const auto start = std::chrono::steady_clock::now();
  int status = 0;
  bool ended = false, open = true;
  double ended_at = 0;
  // Grandchildren may keep the pipe open: half a second after the child's own end is enough.
  while (!ended || (open && seconds_since(start) < ended_at + 0.5)) {
    if (open) {
      pollfd entry{output, POLLIN, 0};
      char buffer[4096];
      if (::poll(&entry, 1, 20) > 0) {
        const ssize_t count = ::read(output, buffer, sizeof(buffer));
        if (count > 0) result.output.append(buffer, static_cast<std::size_t>(count));
        if (count == 0) open = false;
      }
    } else {
      ::usleep(5000);
    }
    if (ended) continue;
    if (::waitpid(child, &status, WNOHANG | WUNTRACED) == child) {
      if (!WIFSTOPPED(status)) {
        ended = true;
        ended_at = seconds_since(start);
        continue;
      }
      result.stopped = true;
      ::kill(-child, SIGKILL);
    }
    if (seconds_since(start) > timeout_seconds && !result.timed_out) {
      result.timed_out = true;
      ::kill(-child, SIGKILL);
    }
  }
  ::close(output);
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

inline pid_t start_child(const std::function<void()>& body, int& output) {
  int ends[2];
  MEGATRON_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "pipe");
  const pid_t child = ::fork();
  MEGATRON_CHECK_GE(child, 0, "fork");
  if (child == 0) {
    ::setpgid(0, 0);
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    body();
    ::_exit(127);
  }
  ::setpgid(child, child);
  ::close(ends[1]);
  output = ends[0];
  return child;
}

}  // namespace child_detail

/// Runs `body` in a fork of this process (which must have one thread) and ends it with the status of design §7: 0, or
/// 2, 3, 1 for the exception it throws.
inline ChildResult run_in_child(const std::function<void()>& body, double timeout_seconds) {
  int output = -1;
  const pid_t child = child_detail::start_child(
      [&] {
        try {
          body();
          ::_exit(0);
        } catch (const ConfigError&) {
          ::_exit(2);
        } catch (const CommError&) {
          ::_exit(3);
        } catch (const std::exception&) {
          ::_exit(1);
        }
      },
      output);
  return child_detail::watch(child, output, timeout_seconds);
}

/// Runs a program found on PATH, with `environment` ("NAME=value") added.
inline ChildResult run_command(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                               double timeout_seconds) {
  int output = -1;
  const pid_t child = child_detail::start_child(
      [&] {
        for (const std::string& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
        std::vector<char*> argv;
        for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
        argv.push_back(nullptr);
        ::execvp(argv[0], argv.data());
      },
      output);
  return child_detail::watch(child, output, timeout_seconds);
}

}  // namespace megatron::comm
