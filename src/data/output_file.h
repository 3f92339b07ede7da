// A file that is written under a temporary name and appears under its own only when complete. One process at a time:
// the temporary file is locked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace megatron::data {

/// The temporary file is locked by another process (or object).
class FileBusy : public IoError {
 public:
  using IoError::IoError;
};

/// The temporary file does not hold what it is to continue.
class FileShort : public IoError {
 public:
  using IoError::IoError;
};

class OutputFile {
 public:
  /// Opens PATH.tmp for writing (and reading back), cut to its first `kept_bytes`. Throws IoError; FileShort when the
  /// file has fewer; FileBusy when another process writes it.
  explicit OutputFile(const std::string& path, std::int64_t kept_bytes = 0, bool keep = false);
  /// Removes the temporary file unless it was committed or is to be kept.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  /// Appends; buffered.
  void write(std::span<const std::byte> bytes);
  template <typename T>
  void write_value(const T& value) {
    write(std::as_bytes(std::span<const T, 1>(&value, 1)));
  }
  /// Calls `sink` with the content, piece by piece, from the beginning.
  template <typename Sink>
  void read_back(Sink&& sink);
  /// Flushes and syncs to disk.
  void sync();
  /// Renames to the final name; call `sync` before.
  void commit();
  /// Whether the temporary file outlives the object, for a later run that continues.
  void keep(bool kept = true) { kept_ = kept; }

 private:
  void open_locked();
  void flush();
  std::size_t read_at(std::int64_t offset, std::span<std::byte> into);

  std::string path_, temporary_;
  int fd_ = -1;
  bool committed_ = false, kept_ = false;
  std::int64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

/// A whole file at once: temporary name, sync, rename. Throws as OutputFile.
void write_whole_file(const std::string& path, std::string_view text);

/// Syncs the folder that holds `path`, so that a rename inside it is on disk.
void sync_folder_of(const std::string& path);

template <typename Sink>
void OutputFile::read_back(Sink&& sink) {
  flush();
  std::vector<std::byte> piece(1 << 20);
  for (std::int64_t at = 0; at < size_;) {
    const std::size_t got = read_at(at, piece);
    sink(std::span<const std::byte>(piece.data(), got));
    at += static_cast<std::int64_t>(got);
  }
}

}  // namespace megatron::data
