// The safetensors container: a JSON header with name, dtype, shape and byte range of each tensor, then the bytes.
// Reading is strict: whatever is damaged is an IoError that names path and offset. Data are not copied: spans point
// into the mapping. Elements may be unaligned there (the format allows it), so typed access goes through the read
// functions. Format: https://huggingface.co/docs/safetensors (8 bytes little-endian header size, header, data without
// gaps).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"
#include "checkpoint/file_io.h"

namespace megatron::checkpoint {

/// Element types that may stand in a file (`BOOL` is one byte per element).
enum class FileDType : std::uint8_t { boolean, u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64 };

std::int64_t file_dtype_size(FileDType dtype);
/// "F32", "BF16", … as the header spells it.
std::string_view file_dtype_name(FileDType dtype);
FileDType file_dtype_of(DType dtype);

struct TensorInfo {
  std::string name;
  FileDType dtype = FileDType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes, from the start of the file

  std::int64_t numel() const;
  std::int64_t bytes() const { return end - begin; }
  /// "[768, 3072]"
  std::string shape_text() const;
};

/// What the header says.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              // ordered by position in the file
  std::map<std::string, std::string> metadata;  // `__metadata__`
  std::int64_t data_begin = 0;                  // length of size field and header
};

/// Parses and checks a whole file. `path` is for messages only. Throws IoError naming path and offset: header damaged
/// or too long, duplicate or unknown keys, unknown dtype, ranges that overlap, leave gaps, pass the end or do not fit
/// the shape, data cut short or too long, a Git LFS pointer in place of the file.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path);

/// Converts elements as they stand in a file; the file's dtype may be any float or integer type.
void convert_elements(FileDType dtype, const std::byte* source, std::int64_t count, double* out);
void convert_elements(FileDType dtype, const std::byte* source, std::int64_t count, float* out);

/// A file open for reading.
class SafetensorsFile {
 public:
  /// Maps and checks the file. Throws IoError.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  bool has(const std::string& name) const { return by_name_.count(name) != 0; }
  /// Throws IoError naming path and tensor if there is none of that name; so do all functions below.
  const TensorInfo& info(const std::string& name) const;
  /// Size field and header, up to the first tensor.
  std::span<const std::byte> header_bytes() const {
    return file_.bytes().subspan(0, static_cast<std::size_t>(header_.data_begin));
  }
  /// The raw little-endian bytes, in the mapping (they live as long as this object).
  std::span<const std::byte> bytes(const std::string& name) const;
  std::vector<double> read_double(const std::string& name) const;
  std::vector<float> read_float(const std::string& name) const;
  /// Integers and booleans only; a u64 above 2^63 − 1 is an error.
  std::vector<std::int64_t> read_int64(const std::string& name) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t> by_name_;
};

/// A tensor to be written.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
};

/// Where everything of a file to be written will stand.
struct SafetensorsLayout {
  std::string header;                 // size field, JSON, padding with blanks up to a multiple of 64 bytes
  std::vector<std::int64_t> offsets;  // of each tensor, bytes from the start of the file, in the given order
  std::int64_t file_bytes = 0;
};

/// Deterministic; tensors follow one another in the given order. Throws Error for a name that occurs twice.
SafetensorsLayout layout_safetensors(std::span<const TensorToWrite> tensors,
                                     const std::map<std::string, std::string>& metadata);

/// Writes a file front to back, tensor by tensor: the header first, then the data of the tensors in the given order.
class SafetensorsWriter {
 public:
  /// Creates or replaces `path`. Throws IoError, as do append and finish.
  SafetensorsWriter(const std::string& path, const std::vector<TensorToWrite>& tensors,
                    const std::map<std::string, std::string>& metadata = {});

  /// The next bytes of the file's data; a tensor may come in several parts.
  void append(std::span<const std::byte> data);
  /// Checks that all data have come, flushes to the disk and closes.
  void finish();

 private:
  OutputFile file_;
  std::int64_t file_bytes_ = 0;
  std::int64_t written_ = 0;
};

}  // namespace megatron::checkpoint
