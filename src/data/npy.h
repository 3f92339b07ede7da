// NumPy's .npy files (version 1.0) of integers, little-endian, C order: what Megatron-LM keeps its indices in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "data/index_array.h"

namespace megatron::data {

/// "<i2", "<i4", "<u4" or "<i8".
std::int64_t npy_item_size(std::string_view descr);

/// Writes `rows` × `columns` values (columns 0: one dimension) under a temporary name, syncs and renames. Throws
/// IoError.
void write_npy(const std::string& path, std::string_view descr, std::int64_t rows, std::int64_t columns,
               const std::function<std::int64_t(std::int64_t row, std::int64_t column)>& value);

/// A mapped file whose header has been read.
struct NpyFile {
  std::shared_ptr<const MappedFile> file;
  std::string descr;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // of the first value

  /// One column (of a one-dimensional file: 0). The type must have 4 or 8 bytes.
  IndexArray column(std::int64_t index) const;
  /// A copy of all values of a "<i2" file.
  std::vector<std::int16_t> int16_values() const;
};
/// Throws IoError with path and reason when the file cannot be read, is not of this kind or its size is not its
/// shape's.
NpyFile open_npy(const std::string& path);

}  // namespace megatron::data
