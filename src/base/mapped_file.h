// A file mapped read-only into memory; the mapping lives as long as the object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace megatron {

class MappedFile {
 public:
  MappedFile() = default;
  /// Maps the whole file. Throws IoError naming the path; an empty file maps to an empty span.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::int64_t size() const { return static_cast<std::int64_t>(size_); }
  const std::string& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string path_;
};

}  // namespace megatron
