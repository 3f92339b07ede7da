#include "train/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/check.h"

namespace megatron::train {

void check_writable(const char* option, const std::string& path) {
  struct stat found {};
  const bool exists = ::stat(path.c_str(), &found) == 0;
  if (exists && S_ISFIFO(found.st_mode)) return;  // opening it would end its reader
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw IoError(str_cat(option, " ", path, ": cannot open: ", std::strerror(errno)));
  ::close(fd);
  if (!exists) ::unlink(path.c_str());
}

std::vector<std::string> output_problems(const spec::RunSpec& run) {
  std::vector<std::string> problems;
  const auto check = [&problems](const char* option, const std::optional<std::string>& path) {
    try {
      if (path) check_writable(option, *path);
    } catch (const IoError& error) {
      problems.emplace_back(error.what());
    }
  };
  check("--trace", run.log.trace);
  check("--log-json", run.log.log_json);
  if (!run.parallel.schedule_out.empty()) check("--pipeline-schedule-out", run.parallel.schedule_out);
  return problems;
}

}  // namespace megatron::train
