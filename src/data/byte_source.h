// Files read from front to back, as they are or decompressed: by their name .gz and .zst, standard input ("-") by its
// first bytes. Memory is constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace megatron::data {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Writes up to `into.size()` bytes and returns how many; 0 only at the end. Throws IoError with path and offset for
  /// what cannot be read and for damaged or truncated compressed data.
  virtual std::size_t read(std::span<char> into) = 0;
  /// Passes over the first `count` bytes, before anything is read. Throws IoError when there are fewer.
  virtual void skip(std::int64_t count) = 0;
  /// Bytes of the file taken so far; compressed ones if it is compressed.
  virtual std::int64_t consumed() const = 0;
};

/// Throws IoError naming the path.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);
/// The name without .gz or .zst.
std::string uncompressed_name(const std::string& path);
/// Bytes on disk; unset for standard input and what is no regular file.
std::optional<std::int64_t> bytes_on_disk(const std::string& path);

}  // namespace megatron::data
