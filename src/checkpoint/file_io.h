// System calls on files with errors as IoError: whole writes, reads, fsync of files and folders, rename.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megatron::checkpoint {

/// A file descriptor that closes itself. All functions throw IoError naming path, operation and the system's reason.
class OutputFile {
 public:
  enum class Mode : std::uint8_t { create, open };  // make or empty it; it must be there
  OutputFile() = default;
  OutputFile(const std::string& path, Mode mode);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  void write_at(std::int64_t offset, std::span<const std::byte> data);
  /// Grows the file to `bytes` with its blocks reserved where the file system can: a full disk shows here, not
  /// half-way.
  void reserve(std::int64_t bytes);
  void sync();
  /// Closes and reports what close() reports (late write errors of network file systems).
  void close();

 private:
  int fd_ = -1;
  std::string path_;
};

std::span<const std::byte> as_bytes(std::string_view text);
/// Writes `text` as the whole file and syncs it.
void write_text_file(const std::string& path, std::string_view text);
std::string read_text_file(const std::string& path);
/// Makes names created, renamed or removed in `directory` durable.
void sync_directory(const std::string& directory);
void rename_path(const std::string& from, const std::string& to);
/// Removes a file or a whole tree; nothing happens if it is not there.
void remove_path(const std::string& path);
void create_directories(const std::string& path);
/// Something is there; false too where nobody may look.
bool exists(const std::string& path);
/// Bytes that an unprivileged writer may still use on the file system that holds `directory` (or its nearest parent
/// that exists).
std::int64_t free_bytes(const std::string& directory);

}  // namespace megatron::checkpoint
