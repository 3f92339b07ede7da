#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/check.h"

namespace megatron::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and are mapped as they are");

using Json = nlohmann::json;

// The reference implementation refuses longer headers too.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::int64_t kHeaderAlignment = 64;

struct DTypeRow {
  std::string_view name;
  std::int64_t size;
};
// In the order of FileDType.
constexpr std::array<DTypeRow, 13> kDTypes{{{"BOOL", 1},
                                            {"U8", 1},
                                            {"I8", 1},
                                            {"U16", 2},
                                            {"I16", 2},
                                            {"U32", 4},
                                            {"I32", 4},
                                            {"U64", 8},
                                            {"I64", 8},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"F32", 4},
                                            {"F64", 8}}};

const DTypeRow& row_of(FileDType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

[[noreturn]] void fail(const std::string& path, std::int64_t offset, const std::string& reason) {
  throw IoError(str_cat(path, ": at offset ", offset, ": ", reason));
}

/// Refuses duplicate keys and deep nesting while the parser runs; the parser itself would keep the last of two
/// silently.
class KeyWatch {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      if (depth > 3) problem = "nested too deeply";
      keys_.resize(static_cast<std::size_t>(depth) + 1);
      keys_.back().clear();
    } else if (event == Json::parse_event_t::key && !keys_.empty()) {
      if (!keys_.back().insert(parsed.get_ref<const std::string&>()).second)
        problem = str_cat("key ", parsed.dump(), " occurs twice");
    } else if (event == Json::parse_event_t::object_end && !keys_.empty()) {
      keys_.pop_back();
    } else if (event == Json::parse_event_t::array_start && depth > 4) {
      problem = "nested too deeply";
    }
    return problem.empty();
  }
  std::string problem;

 private:
  std::vector<std::set<std::string>> keys_;
};

Json parse_header_json(std::span<const std::byte> text, const std::string& path) {
  const char* begin = reinterpret_cast<const char*>(text.data());
  KeyWatch watch;
  Json json;
  try {
    json = Json::parse(begin, begin + text.size(), std::ref(watch));
  } catch (const Json::parse_error& error) {
    fail(path, 8 + static_cast<std::int64_t>(error.byte), "the header is not valid JSON");
  }
  if (!watch.problem.empty()) fail(path, 8, str_cat("header: ", watch.problem));
  if (!json.is_object()) fail(path, 8, "the header is not a JSON object");
  return json;
}

FileDType parse_dtype(const Json& value, const std::string& name, const std::string& path) {
  if (value.is_string())
    for (std::size_t i = 0; i < kDTypes.size(); ++i)
      if (value.get_ref<const std::string&>() == kDTypes[i].name) return static_cast<FileDType>(i);
  fail(path, 8, str_cat("tensor \"", name, "\": unknown dtype ", value.dump()));
}

/// A non-negative integer below 2^63.
std::int64_t parse_count(const Json& value, const char* what, const std::string& name, const std::string& path) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    fail(path, 8, str_cat("tensor \"", name, "\": ", what, " holds ", value.dump(), ", not a count"));
  return value.get<std::int64_t>();
}

TensorInfo parse_tensor(const std::string& name, const Json& entry, std::int64_t data_begin, std::int64_t data_bytes,
                        const std::string& path) {
  const auto complain = [&](const std::string& reason) { fail(path, 8, str_cat("tensor \"", name, "\": ", reason)); };
  if (!entry.is_object()) complain("its description is not an object");
  for (const auto& [key, value] : entry.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets") complain(str_cat("unknown key \"", key, "\""));
  if (entry.size() != 3) complain("dtype, shape or data_offsets is missing");
  TensorInfo info;
  info.name = name;
  info.dtype = parse_dtype(entry.at("dtype"), name, path);
  const Json& shape = entry.at("shape");
  const Json& offsets = entry.at("data_offsets");
  if (!shape.is_array()) complain("shape is not a list");
  if (!offsets.is_array() || offsets.size() != 2) complain("data_offsets is not a pair");
  std::int64_t bytes = row_of(info.dtype).size;
  for (const Json& size : shape) {
    info.shape.push_back(parse_count(size, "shape", name, path));
    if (__builtin_mul_overflow(bytes, info.shape.back(), &bytes)) complain("shape is too large");
  }
  const std::int64_t begin = parse_count(offsets[0], "data_offsets", name, path);
  const std::int64_t end = parse_count(offsets[1], "data_offsets", name, path);
  if (end < begin) complain(str_cat("data_offsets [", begin, ", ", end, "] run backwards"));
  if (end - begin != bytes)
    complain(
        str_cat("data_offsets [", begin, ", ", end, "] span ", end - begin, " bytes, dtype and shape need ", bytes));
  if (end > data_bytes)
    fail(path, data_begin + data_bytes,
         str_cat("tensor \"", name, "\" ends at offset ", data_begin + end, ", but the file is only ",
                 data_begin + data_bytes, " bytes long (truncated?)"));
  info.begin = data_begin + begin;
  info.end = data_begin + end;
  return info;
}

void check_ranges(std::vector<TensorInfo>& tensors, std::int64_t data_begin, std::int64_t file_bytes,
                  const std::string& path) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t position = data_begin;
  for (const TensorInfo& info : tensors) {
    if (info.begin < position) fail(path, info.begin, str_cat("tensor \"", info.name, "\" overlaps the one before it"));
    if (info.begin > position)
      fail(path, position, str_cat("bytes before tensor \"", info.name, "\" belong to no tensor"));
    position = info.end;
  }
  if (position != file_bytes)
    fail(path, position, str_cat(file_bytes - position, " bytes at the end belong to no tensor"));
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 31U;
  const std::uint32_t fraction = half & 1023U;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

template <typename Stored>
Stored load(const std::byte* source) {
  Stored value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

template <typename Stored, typename Out>
void convert_as(const std::byte* source, std::int64_t count, Out* out) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<Out>(load<Stored>(source + i * std::int64_t{sizeof(Stored)}));
}

template <typename Out>
void convert_any(FileDType dtype, const std::byte* source, std::int64_t count, Out* out) {
  switch (dtype) {
    case FileDType::boolean:
    case FileDType::u8:
      return convert_as<std::uint8_t>(source, count, out);
    case FileDType::i8:
      return convert_as<std::int8_t>(source, count, out);
    case FileDType::u16:
      return convert_as<std::uint16_t>(source, count, out);
    case FileDType::i16:
      return convert_as<std::int16_t>(source, count, out);
    case FileDType::u32:
      return convert_as<std::uint32_t>(source, count, out);
    case FileDType::i32:
      return convert_as<std::int32_t>(source, count, out);
    case FileDType::u64:
      return convert_as<std::uint64_t>(source, count, out);
    case FileDType::i64:
      return convert_as<std::int64_t>(source, count, out);
    case FileDType::f32:
      return convert_as<float>(source, count, out);
    case FileDType::f64:
      return convert_as<double>(source, count, out);
    case FileDType::f16:
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<Out>(half_to_float(load<std::uint16_t>(source + 2 * i)));
      return;
    case FileDType::bf16:
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<Out>(
            std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(source + 2 * i)) << 16));
      return;
  }
}

}  // namespace

std::int64_t file_dtype_size(FileDType dtype) { return row_of(dtype).size; }
std::string_view file_dtype_name(FileDType dtype) { return row_of(dtype).name; }

FileDType file_dtype_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return FileDType::f32;
    case DType::float64:
      return FileDType::f64;
    case DType::bfloat16:
      return FileDType::bf16;
    case DType::float16:
      return FileDType::f16;
    case DType::int64:
      return FileDType::i64;
    case DType::int32:
      return FileDType::i32;
    case DType::uint16:
      return FileDType::u16;
    case DType::uint8:
      return FileDType::u8;
  }
  MEGATRON_CHECK(false, "unknown dtype");
  return FileDType::u8;
}

std::int64_t TensorInfo::numel() const { return bytes() / file_dtype_size(dtype); }

std::string TensorInfo::shape_text() const {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += str_cat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.substr(0, 43) == "version https://git-lfs.github.com/spec/v1\n")
    fail(path, 0, "this is a Git LFS pointer, not the file itself (fetch it with `git lfs pull`)");
  if (file.size() < 8) fail(path, static_cast<std::int64_t>(file.size()), "the file ends inside the header size");
  const auto header_bytes = load<std::uint64_t>(file.data());
  if (header_bytes > kMaxHeaderBytes)
    fail(path, 0, str_cat("header size ", header_bytes, " is above ", kMaxHeaderBytes));
  if (header_bytes > file.size() - 8)
    fail(path, static_cast<std::int64_t>(file.size()),
         str_cat("the file ends inside the header of ", header_bytes, " bytes"));
  if (header_bytes < 2 || text[8] != '{') fail(path, 8, "the header does not start with '{'");
  const Json json = parse_header_json(file.subspan(8, header_bytes), path);
  const std::int64_t data_begin = 8 + static_cast<std::int64_t>(header_bytes);
  const std::int64_t file_bytes = static_cast<std::int64_t>(file.size());
  SafetensorsHeader header;
  header.data_begin = data_begin;
  for (const auto& [name, entry] : json.items()) {
    if (name != "__metadata__") {
      header.tensors.push_back(parse_tensor(name, entry, data_begin, file_bytes - data_begin, path));
      continue;
    }
    if (!entry.is_object()) fail(path, 8, "__metadata__ is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail(path, 8, str_cat("__metadata__ \"", key, "\" is not a string"));
      header.metadata[key] = value.get<std::string>();
    }
  }
  check_ranges(header.tensors, data_begin, file_bytes, path);
  return header;
}

void convert_elements(FileDType dtype, const std::byte* source, std::int64_t count, double* out) {
  convert_any(dtype, source, count, out);
}

void convert_elements(FileDType dtype, const std::byte* source, std::int64_t count, float* out) {
  if (dtype == FileDType::f32) {
    std::memcpy(out, source, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  convert_any(dtype, source, count, out);
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), header_(parse_safetensors(file_.bytes(), path)) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) throw IoError(str_cat(path(), ": has no tensor \"", name, "\""));
  return header_.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  return file_.bytes().subspan(static_cast<std::size_t>(tensor.begin), static_cast<std::size_t>(tensor.bytes()));
}

std::vector<double> SafetensorsFile::read_double(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  convert_elements(tensor.dtype, bytes(name).data(), tensor.numel(), values.data());
  return values;
}

std::vector<float> SafetensorsFile::read_float(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
  if (!values.empty()) convert_elements(tensor.dtype, bytes(name).data(), tensor.numel(), values.data());
  return values;
}

std::vector<std::int64_t> SafetensorsFile::read_int64(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  if (tensor.dtype >= FileDType::f16)
    throw IoError(str_cat(path(), ": tensor \"", name, "\" is ", file_dtype_name(tensor.dtype), ", not integer"));
  std::vector<std::int64_t> values(static_cast<std::size_t>(tensor.numel()));
  convert_any(tensor.dtype, bytes(name).data(), tensor.numel(), values.data());
  if (tensor.dtype == FileDType::u64 && std::any_of(values.begin(), values.end(), [](std::int64_t v) { return v < 0; }))
    throw IoError(str_cat(path(), ": tensor \"", name, "\" holds a value above 2^63 - 1"));
  return values;
}

SafetensorsLayout layout_safetensors(std::span<const TensorToWrite> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + Json(metadata).dump();
  std::set<std::string> names;
  SafetensorsLayout layout;
  std::int64_t position = 0;
  for (const TensorToWrite& tensor : tensors) {
    MEGATRON_CHECK(names.insert(tensor.name).second, "tensor \"", tensor.name, "\" is to be written twice");
    MEGATRON_CHECK(tensor.name != "__metadata__", "a tensor may not have this name");
    std::int64_t bytes = dtype_size(tensor.dtype);
    for (const std::int64_t size : tensor.shape) bytes *= size;
    layout.offsets.push_back(position);
    json += str_cat(json.size() > 1 ? "," : "", Json(tensor.name).dump(), ":{\"dtype\":\"",
                    file_dtype_name(file_dtype_of(tensor.dtype)), "\",\"shape\":", Json(tensor.shape).dump(),
                    ",\"data_offsets\":[", position, ",", position + bytes, "]}");
    position += bytes;
  }
  json += "}";
  const std::int64_t unpadded = 8 + static_cast<std::int64_t>(json.size());
  const std::int64_t data_begin = (unpadded + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment;
  json.append(static_cast<std::size_t>(data_begin - unpadded), ' ');
  const std::uint64_t header_bytes = json.size();
  MEGATRON_CHECK_LE(header_bytes, kMaxHeaderBytes, "header of a safetensors file");
  layout.header.assign(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  layout.header += json;
  for (std::int64_t& offset : layout.offsets) offset += data_begin;
  layout.file_bytes = data_begin + position;
  return layout;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorToWrite>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path, OutputFile::Mode::create) {
  const SafetensorsLayout layout = layout_safetensors(tensors, metadata);
  file_bytes_ = layout.file_bytes;
  file_.write_at(0, as_bytes(layout.header));
  written_ = static_cast<std::int64_t>(layout.header.size());
}

void SafetensorsWriter::append(std::span<const std::byte> data) {
  MEGATRON_CHECK_LE(written_ + static_cast<std::int64_t>(data.size()), file_bytes_, "more data than was announced");
  file_.write_at(written_, data);
  written_ += static_cast<std::int64_t>(data.size());
}

void SafetensorsWriter::finish() {
  MEGATRON_CHECK_EQ(written_, file_bytes_, "bytes written to ", file_.path(), " and announced");
  file_.sync();
  file_.close();
}

}  // namespace megatron::checkpoint
