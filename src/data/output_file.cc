#include "data/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace megatron::data {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

[[noreturn]] void fail(const std::string& path, std::int64_t offset, const char* what) {
  throw IoError(str_cat(path, ": cannot ", what, " at offset ", offset, ": ", std::strerror(errno)));
}

}  // namespace

OutputFile::OutputFile(const std::string& path, std::int64_t kept_bytes, bool keep)
    : path_(path), temporary_(path + ".tmp"), kept_(keep) {
  try {
    open_locked();
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail(temporary_, 0, "examine");
    if (info.st_size < kept_bytes)
      throw FileShort(str_cat(temporary_, ": expected at least ", kept_bytes, " bytes, found ", info.st_size));
    if (::ftruncate(fd_, kept_bytes) != 0) fail(temporary_, kept_bytes, "cut");
    if (::lseek(fd_, kept_bytes, SEEK_SET) != kept_bytes) fail(temporary_, kept_bytes, "seek");
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
  size_ = kept_bytes;
  buffer_.reserve(kBufferBytes);
}

OutputFile::~OutputFile() {
  if (!committed_ && !kept_) ::unlink(temporary_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::open_locked() {
  for (;;) {
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) throw IoError(str_cat(temporary_, ": cannot create: ", std::strerror(errno)));
    // File systems without locks are used without.
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw FileBusy(temporary_ + ": is being written by another process");
    // Whoever held the lock may have given the file its final name in between.
    struct stat opened {
    }, named{};
    if (::fstat(fd_, &opened) == 0 && ::stat(temporary_.c_str(), &named) == 0 && opened.st_ino == named.st_ino) return;
    ::close(fd_);
    fd_ = -1;
  }
}

void OutputFile::write(std::span<const std::byte> bytes) {
  size_ += static_cast<std::int64_t>(bytes.size());
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
    bytes = bytes.subspan(part);
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void OutputFile::flush() {
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t put = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail(temporary_, size_ - static_cast<std::int64_t>(buffer_.size() - done), "write");
    done += static_cast<std::size_t>(put);
  }
  buffer_.clear();
}

std::size_t OutputFile::read_at(std::int64_t offset, std::span<std::byte> into) {
  ssize_t got = -1;
  do {
    got = ::pread(fd_, into.data(), into.size(), offset);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) fail(temporary_, offset, "read back");
  return static_cast<std::size_t>(got);
}

void OutputFile::sync() {
  flush();
  if (::fsync(fd_) != 0) fail(temporary_, size_, "sync");
}

void OutputFile::commit() {
  flush();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw IoError(str_cat(temporary_, ": cannot rename to ", path_, ": ", std::strerror(errno)));
  committed_ = true;
}

void write_whole_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.commit();
}

void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // a folder that may be written but not read: nothing to sync through
  ::fsync(fd);
  ::close(fd);
}

}  // namespace megatron::data
