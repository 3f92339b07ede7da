// Runs `megatron train` with a tiny model on synthetic data, with thread ranks or under mpirun, as a user would.
#pragma once

#include <dirent.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "mpi/mpi_process.h"
#include "support/temporary_folder.h"

namespace megatron::comm {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Words train_command(const Words& more) {
  // clang-format off
  const Words fixed = {MEGATRON_BINARY, "train", "--mock-data", "--tokenizer-type", "ByteLevel", "--num-layers", "2",
                       "--hidden-size", "32", "--num-attention-heads", "4", "--seq-length", "32",
                       "--micro-batch-size", "1", "--global-batch-size", "4", "--lr", "1e-3", "--lr-warmup-iters", "1",
                       "--split", "90,10,0", "--log-interval", "1", "--eval-iters", "1", "--threads-per-rank", "1"};
  // clang-format on
  return fixed + more;
}

/// Ranks are threads of one process.
inline ChildResult train_threads(const Words& more, double timeout_seconds = 60) {
  return run_command(train_command(more), {}, timeout_seconds);
}

inline Words mpirun_command(int processes, const Words& more) {
  return Words{"mpirun", "--oversubscribe", "-n", std::to_string(processes)} + train_command(more);
}

inline ChildResult train_mpi(int processes, const Words& more, double timeout_seconds = 60) {
  return run_command(mpirun_command(processes, more), mpi_environment(), timeout_seconds);
}

/// A run that is under way: something happens to it, then it ends.
class StartedRun {
 public:
  explicit StartedRun(const Words& command) {
    pid_ = child_detail::start_child(
        [&] {
          const Words environment = mpi_environment();
          for (const std::string& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
          std::vector<char*> argv;
          for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
          argv.push_back(nullptr);
          ::execvp(argv[0], argv.data());
        },
        output_);
  }
  ~StartedRun() {
    if (!finished_) finish(0);
  }
  StartedRun(const StartedRun&) = delete;
  StartedRun& operator=(const StartedRun&) = delete;

  /// Reads on until the output holds `text`.
  bool wait_for(const std::string& text, double timeout_seconds = 30) {
    const auto start = std::chrono::steady_clock::now();
    while (text_.find(text) == std::string::npos) {
      if (child_detail::seconds_since(start) > timeout_seconds) return false;
      pollfd entry{output_, POLLIN, 0};
      char buffer[4096];
      if (::poll(&entry, 1, 20) <= 0) continue;
      const ssize_t count = ::read(output_, buffer, sizeof(buffer));
      if (count <= 0) return false;
      text_.append(buffer, static_cast<std::size_t>(count));
    }
    return true;
  }
  void signal(int number) const { ::kill(pid_, number); }
  ChildResult finish(double timeout_seconds) {
    finished_ = true;
    ChildResult result = child_detail::watch(pid_, output_, timeout_seconds);
    result.output = text_ + result.output;
    return result;
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  bool finished_ = false;
  std::string text_;
};

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The text of `key` in every line of a JSON log that has it, as it was written.
inline Words json_texts(const std::string& path, const std::string& key) {
  Words values;
  std::ifstream in(path);
  const std::string start = "\"" + key + "\": ";
  for (std::string line; std::getline(in, line);) {
    const std::size_t at = line.find(start);
    if (at == std::string::npos) continue;
    const std::size_t from = at + start.size();
    values.push_back(line.substr(from, line.find_first_of(",}", from) - from));
  }
  return values;
}

/// Processes whose command line holds `text` (a folder of the test's own).
inline int processes_with(const std::string& text) {
  int count = 0;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return -1;
  while (const dirent* entry = ::readdir(folder)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    if (file_text(std::string("/proc/") + entry->d_name + "/cmdline").find(text) != std::string::npos) ++count;
  }
  ::closedir(folder);
  return count;
}

/// As processes_with, but gives the launcher's children two seconds to be reaped.
inline int processes_left(const std::string& text) {
  for (int i = 0; i < 200 && processes_with(text) > 0; ++i) ::usleep(10000);
  return processes_with(text);
}

}  // namespace megatron::comm
