#include "train/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace megatron::train
