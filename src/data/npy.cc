#include "data/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/check.h"
#include "data/output_file.h"

namespace megatron::data {
namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
constexpr std::size_t kAlignment = 64;

/// The text between `begin` and `end` in a header.
std::string_view between(std::string_view header, std::string_view begin, std::string_view end,
                         const std::string& path) {
  const std::size_t at = header.find(begin);
  const std::size_t stop = at == std::string_view::npos ? at : header.find(end, at + begin.size());
  if (stop == std::string_view::npos) throw IoError(str_cat(path, ": header lacks ", begin));
  return header.substr(at + begin.size(), stop - at - begin.size());
}

std::vector<std::int64_t> parse_shape(std::string_view text, const std::string& path) {
  std::vector<std::int64_t> shape;
  while (!text.empty()) {
    const std::size_t digit = text.find_first_of("0123456789");
    if (digit == std::string_view::npos) break;
    text.remove_prefix(digit);
    std::int64_t value = 0;
    const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc()) throw IoError(str_cat(path, ": header has an impossible shape"));
    shape.push_back(value);
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  }
  return shape;
}

void put(std::int64_t value, std::int64_t size, OutputFile& file) {
  file.write(std::as_bytes(std::span<const std::int64_t, 1>(&value, 1)).first(static_cast<std::size_t>(size)));
}

}  // namespace

std::int64_t npy_item_size(std::string_view descr) {
  MEGATRON_CHECK(descr == "<i2" || descr == "<i4" || descr == "<u4" || descr == "<i8", "type ", descr);
  return descr[2] - '0';
}

void write_npy(const std::string& path, std::string_view descr, std::int64_t rows, std::int64_t columns,
               const std::function<std::int64_t(std::int64_t, std::int64_t)>& value) {
  std::string header = str_cat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", rows, ",",
                               columns > 0 ? " " + std::to_string(columns) : "", "), }");
  const std::size_t filled = kMagic.size() + 2 + header.size() + 1;
  header += std::string((kAlignment - filled % kAlignment) % kAlignment, ' ') + "\n";
  OutputFile file(path);
  file.write(std::as_bytes(std::span(kMagic)));
  file.write_value(static_cast<std::uint16_t>(header.size()));
  file.write(std::as_bytes(std::span(header)));
  const std::int64_t size = npy_item_size(descr);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < std::max<std::int64_t>(columns, 1); ++column)
      put(value(row, column), size, file);
  file.sync();
  file.commit();
}

NpyFile open_npy(const std::string& path) {
  NpyFile npy;
  npy.file = std::make_shared<const MappedFile>(path);
  const std::string_view bytes(reinterpret_cast<const char*>(npy.file->bytes().data()), npy.file->bytes().size());
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + 2)
    throw IoError(str_cat(path, ": offset 0: is not a .npy file of version 1.0"));
  std::uint16_t length = 0;
  std::memcpy(&length, bytes.data() + kMagic.size(), sizeof(length));
  npy.offset = static_cast<std::int64_t>(kMagic.size()) + 2 + length;
  if (npy.offset > npy.file->size()) throw IoError(str_cat(path, ": header is truncated"));
  const std::string_view header = bytes.substr(kMagic.size() + 2, length);
  npy.descr = between(header, "'descr': '", "'", path);
  npy.shape = parse_shape(between(header, "'shape': (", ")", path), path);
  const bool known = npy.descr == "<i2" || npy.descr == "<i4" || npy.descr == "<u4" || npy.descr == "<i8";
  if (!known || header.find("'fortran_order': False") == std::string_view::npos || npy.shape.empty())
    throw IoError(str_cat(path, ": holds no little-endian integers in C order (type ", npy.descr, ")"));
  std::int64_t expected = npy_item_size(npy.descr);
  for (const std::int64_t extent : npy.shape)
    if (__builtin_mul_overflow(expected, extent, &expected)) throw IoError(path + ": header has an impossible shape");
  if (npy.file->size() - npy.offset != expected)
    throw IoError(str_cat(path, ": expected ", expected, " bytes of values at offset ", npy.offset, ", found ",
                          npy.file->size() - npy.offset));
  return npy;
}

IndexArray NpyFile::column(std::int64_t index) const {
  const std::int64_t size = npy_item_size(descr), columns = shape.size() > 1 ? shape[1] : 1;
  MEGATRON_CHECK(size >= 4 && index < columns, "column ", index, " of type ", descr);
  return {file, offset + index * size, shape[0], columns * size, size == 8};
}

std::vector<std::int16_t> NpyFile::int16_values() const {
  MEGATRON_CHECK_EQ(descr, "<i2");
  const auto bytes = file->bytes().subspan(static_cast<std::size_t>(offset));
  std::vector<std::int16_t> values(bytes.size() / sizeof(std::int16_t));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(std::int16_t));
  return values;
}

}  // namespace megatron::data
