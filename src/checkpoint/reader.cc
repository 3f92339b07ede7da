#include "checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "checkpoint/checksum.h"
#include "checkpoint/file_io.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save_folder.h"
#include "checkpoint/tensor_names.h"
#include "checkpoint/writer.h"

namespace megatron::checkpoint {
namespace {

bool is_float(FileDType dtype) { return dtype >= FileDType::f16; }

/// Elements of `dtype` at `source` into `count` elements of `target` at `out`.
void convert_row(FileDType dtype, const std::byte* source, std::int64_t count, DType target, std::byte* out) {
  if (dtype == file_dtype_of(target)) {
    std::memcpy(out, source, static_cast<std::size_t>(count * dtype_size(target)));
  } else if (target == DType::float32) {
    convert_elements(dtype, source, count, reinterpret_cast<float*>(out));
  } else {
    convert_elements(dtype, source, count, reinterpret_cast<double*>(out));
  }
}

/// Copies a piece's rows out of the file; `stride` of the local tensor in bytes.
void copy_piece(const TensorInfo& info, const std::byte* data, std::int64_t file_cols, const spec::Piece& piece,
                const TensorView& local) {
  const std::int64_t file_element = file_dtype_size(info.dtype);
  const std::int64_t stride = local.stride(0) * dtype_size(local.dtype);
  std::byte* const out = static_cast<std::byte*>(local.pointer) + piece.local_row * stride;
  const spec::Box& box = piece.global;
  if (box.cols == file_cols && stride == box.cols * dtype_size(local.dtype)) {
    convert_row(info.dtype, data + box.row * file_cols * file_element, box.numel(), local.dtype, out);
    return;
  }
  for (std::int64_t r = 0; r < box.rows; ++r)
    convert_row(info.dtype, data + ((box.row + r) * file_cols + box.col) * file_element, box.cols, local.dtype,
                out + r * stride);
}

/// Zeroes the rows of the local tensor that no piece covers.
void zero_padding(const spec::Sharding& sharding, const TensorView& local) {
  std::vector<std::pair<std::int64_t, std::int64_t>> covered;
  for (const spec::Piece& piece : sharding.pieces)
    covered.emplace_back(piece.local_row, piece.local_row + piece.global.rows);
  covered.emplace_back(sharding.local_rows, sharding.local_rows);
  std::sort(covered.begin(), covered.end());
  const std::int64_t stride = local.stride(0) * dtype_size(local.dtype);
  const std::int64_t row_bytes = sharding.local_cols * dtype_size(local.dtype);
  std::int64_t row = 0;
  for (const auto& [first, last] : covered) {
    for (; row < first; ++row)
      std::memset(static_cast<std::byte*>(local.pointer) + row * stride, 0, static_cast<std::size_t>(row_bytes));
    row = std::max(row, last);
  }
}

void compare_checksum(const std::string& where, std::uint64_t found, const std::string& expected) {
  if (checksum_text(found) != expected)
    throw IoError(str_cat(where, ": checksum ", checksum_text(found), ", manifest.json says ", expected,
                          " (the file is damaged)"));
}

/// The local tensor must be what its sharding says.
void check_local_shape(const StateEntry& entry) {
  const spec::Sharding& s = entry.sharding;
  const Tensor& local = entry.tensor;
  MEGATRON_CHECK_EQ(local.num_dims(), s.num_dims, entry.name, ": dims of the local tensor");
  MEGATRON_CHECK_EQ(local.size(0), s.local_rows, entry.name, ": rows of the local tensor");
  MEGATRON_CHECK_EQ(local.numel(), s.local_numel(), entry.name, ": elements of the local tensor");
  for (const spec::Piece& piece : s.pieces)
    MEGATRON_CHECK_EQ(piece.global.cols, s.local_cols, entry.name, ": columns of a piece and of the local tensor");
}

}  // namespace

std::optional<std::int64_t> latest_iteration(const std::string& directory) {
  const std::string path = tracker_path(directory);
  if (exists(directory) && !std::filesystem::is_directory(directory))
    throw IoError(str_cat(directory, ": is not a folder, so it holds no checkpoint"));
  if (!exists(path)) return std::nullopt;
  std::string text = read_text_file(path);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
    throw IoError(str_cat(path, ": holds \"", text.substr(0, 40), "\", not an iteration number"));
  return std::stoll(text);
}

struct CheckpointReader::Impl {
  std::string path;
  Manifest manifest;
  std::string state_json;
  std::map<std::string, SafetensorsFile> files;

  void open_files() {
    for (const auto& [name, file] : manifest.files) {
      const std::string full = path + "/" + name;
      std::error_code error;
      const auto bytes = std::filesystem::file_size(full, error);
      if (error) throw IoError(str_cat(full, ": named by manifest.json but cannot be opened: ", error.message()));
      if (static_cast<std::int64_t>(bytes) != file.bytes)
        throw IoError(str_cat(full, ": is ", bytes, " bytes long, manifest.json says ", file.bytes));
      if (std::filesystem::path(name).extension() == ".safetensors") files.emplace(name, SafetensorsFile(full));
    }
    for (const auto& [name, tensor] : manifest.tensors) {
      const auto found = files.find(tensor.file);
      if (found == files.end() || !found->second.has(name))
        throw IoError(str_cat(path, "/", tensor.file, ": has no tensor \"", name, "\" though manifest.json says so"));
    }
  }

  /// The name under which `name` stands in the files, empty if it does not.
  std::string spelled(const std::string& name) const {
    for (const std::string& spelling : spellings(name))
      if (manifest.tensors.count(spelling) != 0) return spelling;
    return {};
  }

  const SafetensorsFile& file_of(const std::string& stored) const { return files.at(manifest.tensors.at(stored).file); }

  std::string require(const std::string& name) const {
    std::string stored = spelled(name);
    if (stored.empty()) throw IoError(str_cat(path, ": has no tensor \"", name, "\""));
    return stored;
  }
};

CheckpointReader::CheckpointReader(const std::string& directory, std::int64_t iteration)
    : impl_(std::make_unique<Impl>()) {
  const std::string base = directory.empty() ? "." : directory;
  impl_->path = exists(base + "/manifest.json") ? base : base + "/" + iteration_folder(iteration);
  if (!exists(impl_->path)) throw IoError(str_cat(impl_->path, ": there is no such checkpoint"));
  const std::string manifest = impl_->path + "/manifest.json";
  impl_->manifest = manifest_from_json(read_text_file(manifest), manifest);
  impl_->open_files();
  if (impl_->manifest.files.count("state.json") == 0) throw IoError(str_cat(manifest, ": does not list state.json"));
  impl_->state_json = read_text_file(impl_->path + "/state.json");
  compare_checksum(impl_->path + "/state.json", checksum_of(as_bytes(impl_->state_json)),
                   impl_->manifest.files.at("state.json").xxh3);
}

CheckpointReader::~CheckpointReader() = default;

const std::string& CheckpointReader::path() const { return impl_->path; }
std::int64_t CheckpointReader::iteration() const { return impl_->manifest.iteration; }
const std::string& CheckpointReader::state_json() const { return impl_->state_json; }

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : impl_->manifest.tensors) names.push_back(name);
  return names;
}

bool CheckpointReader::has(const std::string& name) const { return !impl_->spelled(name).empty(); }

std::vector<std::int64_t> CheckpointReader::shape(const std::string& name) const {
  const std::string stored = impl_->require(name);
  return impl_->file_of(stored).info(stored).shape;
}

void CheckpointReader::read(const StateEntry& entry) const {
  check_local_shape(entry);
  const spec::Sharding& sharding = entry.sharding;
  const std::string stored = impl_->require(entry.name);
  const SafetensorsFile& file = impl_->file_of(stored);
  const TensorInfo& info = file.info(stored);
  const std::int64_t cols = info.shape.size() == 2 ? info.shape[1] : 1;
  const bool same_dims = static_cast<int>(info.shape.size()) == sharding.num_dims;
  const bool rows_fit = same_dims && (info.shape[0] == sharding.rows ||
                                      (has_vocabulary_rows(entry.name) && info.shape[0] > sharding.rows));
  if (!rows_fit || cols != sharding.cols)
    throw IoError(str_cat(file.path(), ": tensor \"", stored, "\" has shape ", info.shape_text(), ", the model needs ",
                          sharding.global_shape_text()));
  const DType local = entry.tensor.dtype();
  const bool converts = is_float(info.dtype) && (local == DType::float32 || local == DType::float64);
  if (info.dtype != file_dtype_of(local) && !converts)
    throw IoError(str_cat(file.path(), ": tensor \"", stored, "\" is ", file_dtype_name(info.dtype),
                          ", the model needs ", dtype_name(local)));
  Tensor target = entry.tensor;
  const TensorView view = target.view();
  const std::byte* const data = file.bytes(stored).data();
  for (const spec::Piece& piece : sharding.pieces) copy_piece(info, data, cols, piece, view);
  zero_padding(sharding, view);
}

void CheckpointReader::verify_checksums(int part, int parts, bool with_optimizer) const {
  const Manifest& manifest = impl_->manifest;
  for (const auto& [name, file] : impl_->files)
    compare_checksum(file.path(), checksum_of(file.header_bytes()), manifest.files.at(name).xxh3);
  int index = 0;
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!with_optimizer && name.rfind("optimizer.", 0) == 0) continue;
    if (index++ % parts != part) continue;
    const SafetensorsFile& file = impl_->files.at(tensor.file);
    compare_checksum(str_cat(file.path(), ": tensor \"", name, "\""), checksum_of(file.bytes(name)), tensor.xxh3);
  }
}

}  // namespace megatron::checkpoint
