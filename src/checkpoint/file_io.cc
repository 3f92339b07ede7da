#include "checkpoint/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace megatron::checkpoint {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw IoError(str_cat(path, ": cannot ", what, ": ", std::strerror(error)));
}

}  // namespace

OutputFile::OutputFile(const std::string& path, Mode mode) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | (mode == Mode::create ? O_CREAT | O_TRUNC : 0), 0666);
  if (fd_ >= 0) return;
  const int error = errno;
  if (mode == Mode::open && error == ENOENT)
    throw IoError(
        str_cat(path, ": was created by the first rank but is not there (do all hosts share this file system?)"));
  fail(path, mode == Mode::create ? "create" : "open", error);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

void OutputFile::write_at(std::int64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    // Linux transfers at most 2 GiB per call.
    const std::size_t part = std::min<std::size_t>(data.size(), std::size_t{1} << 30);
    const ssize_t done = ::pwrite(fd_, data.data(), part, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0)
      throw IoError(
          str_cat(path_, ": cannot write ", data.size(), " bytes at offset ", offset, ": ", std::strerror(errno)));
    offset += done;
    data = data.subspan(static_cast<std::size_t>(done));
  }
}

void OutputFile::reserve(std::int64_t bytes) {
  if (bytes == 0 || ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0) return;
  const int error = errno;
  if (error != EOPNOTSUPP && error != ENOSYS && error != EINTR)
    throw IoError(str_cat(path_, ": cannot reserve ", format_bytes(bytes), ": ", std::strerror(error)));
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) fail(path_, "set the size", errno);
}

void OutputFile::sync() {
  if (::fsync(fd_) != 0) fail(path_, "flush to disk", errno);
}

void OutputFile::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0) fail(path_, "close", errno);
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void write_text_file(const std::string& path, std::string_view text) {
  OutputFile file(path, OutputFile::Mode::create);
  file.write_at(0, as_bytes(text));
  file.sync();
  file.close();
}

std::string read_text_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path, "open", errno);
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      ::close(fd);
      fail(path, "read", error);
    }
    if (got == 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return text;
}

void sync_directory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(directory, "open the folder", errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some network file systems cannot sync a folder and say EINVAL; they order names by themselves.
  if (result != 0 && error != EINVAL && error != ENOTSUP) fail(directory, "flush the folder to disk", error);
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw IoError(str_cat(from, ": cannot rename to ", to, ": ", std::strerror(errno)));
}

void remove_path(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw IoError(str_cat(path, ": cannot remove: ", error.message()));
}

void create_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw IoError(str_cat(path, ": cannot create the folder: ", error.message()));
  if (!std::filesystem::is_directory(path, error)) throw IoError(str_cat(path, ": is not a folder"));
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::int64_t free_bytes(const std::string& directory) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(directory.empty() ? "." : directory, error);
  while (!std::filesystem::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) fail(path.string(), "ask for free space", errno);
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

}  // namespace megatron::checkpoint
