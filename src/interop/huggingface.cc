#include "interop/huggingface.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "base/check.h"
#include "checkpoint/file_io.h"

namespace megatron::interop {
namespace {

using checkpoint::exists;
using checkpoint::SafetensorsFile;
using checkpoint::TensorInfo;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kBodyPrefix = "transformer.";

/// Causal masks and rotary frequencies, which older files hold though they are no weights.
bool is_buffer(const std::string& name, HuggingFaceFamily family) {
  if (family == HuggingFaceFamily::gpt2) return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  return name.ends_with(".rotary_emb.inv_freq");
}

/// Name of each tensor → name of its file, as the index says.
std::map<std::string, std::string> read_index(const std::string& path) {
  const auto json = nlohmann::json::parse(checkpoint::read_text_file(path), nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw IoError(str_cat(path, ": has no weight_map"));
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos || file.get<std::string>().empty())
      throw IoError(str_cat(path, ": \"", name, "\" stands in ", file.dump(), ", which is not a file name"));
    files[name] = file.get<std::string>();
  }
  return files;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  TensorInfo info;
  info.shape = shape;
  return info.shape_text();
}

}  // namespace

HuggingFaceModel::HuggingFaceModel(const std::string& directory, const std::string& config_name)
    : directory_(directory) {
  const std::string config = directory + "/" + config_name;
  config_ = parse_huggingface_config(checkpoint::read_text_file(config), config);
  mappings_ = huggingface_mappings(config_);
  for (std::size_t i = 0; i < mappings_.size(); ++i) by_name_.emplace(mappings_[i].name, i);
  open_files(directory);
  check_tensors();
}

void HuggingFaceModel::open_files(const std::string& directory) {
  const std::string single = directory + "/model.safetensors", index = directory + "/" + kIndexName;
  if (exists(single)) {
    files_.push_back(std::make_shared<SafetensorsFile>(single));
    for (const TensorInfo& info : files_[0]->tensors()) stored_.emplace(info.name, 0);
    return;
  }
  if (!exists(index))
    throw IoError(str_cat(directory, ": holds neither model.safetensors nor ", kIndexName,
                          " (weights in other containers must be converted to safetensors first)"));
  std::map<std::string, std::size_t> opened;
  for (const auto& [name, file_name] : read_index(index)) {
    const auto [found, added] = opened.emplace(file_name, files_.size());
    if (added) files_.push_back(std::make_shared<SafetensorsFile>(directory + "/" + file_name));
    if (!files_[found->second]->has(name))
      throw IoError(
          str_cat(directory, "/", file_name, ": has no tensor \"", name, "\" though ", kIndexName, " says so"));
    stored_.emplace(name, found->second);
  }
}

const SafetensorsFile& HuggingFaceModel::file_of(const std::string& foreign, std::string& stored) const {
  stored = foreign;
  auto found = stored_.find(stored);
  // Files written from the model without its head have no prefix.
  if (found == stored_.end() && foreign.rfind(kBodyPrefix, 0) == 0) {
    stored = foreign.substr(std::strlen(kBodyPrefix));
    found = stored_.find(stored);
  }
  if (found == stored_.end()) throw IoError(str_cat(directory_, ": no file holds tensor \"", foreign, "\""));
  return *files_[found->second];
}

void HuggingFaceModel::check_tied_head(const std::string& name) const {
  std::string head, table;
  const SafetensorsFile& head_file = file_of(name, head);
  const SafetensorsFile& table_file = file_of(mappings_[0].parts[0].name, table);
  const auto a = head_file.bytes(head), b = table_file.bytes(table);
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end()))
    throw IoError(str_cat(head_file.path(), ": ", name, " differs from ", table, " though tie_word_embeddings is set"));
}

void HuggingFaceModel::check_tensors() const {
  std::set<std::string> known;
  for (const TensorMapping& mapping : mappings_)
    for (const ForeignPart& part : mapping.parts) {
      std::string stored;
      const SafetensorsFile& file = file_of(part.name, stored);
      const TensorInfo& info = file.info(stored);
      if (info.shape != part.shape)
        throw IoError(str_cat(file.path(), ": tensor \"", stored, "\" has shape ", info.shape_text(),
                              ", the configuration needs ", shape_text(part.shape)));
      if (info.dtype < checkpoint::FileDType::f16)
        throw IoError(str_cat(file.path(), ": tensor \"", stored, "\" is ", file_dtype_name(info.dtype),
                              ", weights must be floats"));
      known.insert(stored);
    }
  for (const auto& [name, file] : stored_) {
    if (known.count(name) != 0 || is_buffer(name, config_.family)) continue;
    if (name == "lm_head.weight")
      check_tied_head(name);
    else
      throw IoError(str_cat(files_[file]->path(), ": tensor \"", name, "\" has no place in this model"));
  }
}

std::vector<std::string> HuggingFaceModel::names() const {
  std::vector<std::string> names;
  for (const TensorMapping& mapping : mappings_) names.push_back(mapping.name);
  return names;
}

const TensorMapping& HuggingFaceModel::mapping(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) throw IoError(str_cat(directory_, ": the model has no tensor \"", name, "\""));
  return mappings_[found->second];
}

std::int64_t HuggingFaceModel::num_elements(const std::string& name) const {
  return mapping(name).rows * mapping(name).cols;
}

template <typename T>
void HuggingFaceModel::copy_box(const TensorMapping& mapping, const spec::Box& box, T* out, std::int64_t stride) const {
  std::vector<T> column;
  for (const ForeignPart& part : mapping.parts) {
    std::string stored;
    const SafetensorsFile& file = file_of(part.name, stored);
    const auto dtype = file.info(stored).dtype;
    const std::byte* const data = file.bytes(stored).data();
    const std::int64_t element = checkpoint::file_dtype_size(dtype);
    for (const RowRun& run : part.runs) {
      const std::int64_t first = std::max(run.row, box.row);
      const std::int64_t count = std::min(run.row + run.rows, box.row + box.rows) - first;
      if (count <= 0) continue;
      const std::int64_t foreign = run.foreign_row + first - run.row;
      T* const target = out + (first - box.row) * stride;
      if (!part.turned) {
        for (std::int64_t r = 0; r < count; ++r)
          checkpoint::convert_elements(dtype, data + ((foreign + r) * part.cols() + box.col) * element, box.cols,
                                       target + r * stride);
        continue;
      }
      column.resize(static_cast<std::size_t>(count));
      for (std::int64_t c = 0; c < box.cols; ++c) {
        checkpoint::convert_elements(dtype, data + ((box.col + c) * part.rows() + foreign) * element, count,
                                     column.data());
        for (std::int64_t r = 0; r < count; ++r) target[r * stride + c] = column[static_cast<std::size_t>(r)];
      }
    }
  }
}

void HuggingFaceModel::read(const checkpoint::StateEntry& entry) const {
  const TensorMapping& source = mapping(entry.name);
  const spec::Sharding& sharding = entry.sharding;
  if (source.num_dims != sharding.num_dims || source.rows != sharding.rows || source.cols != sharding.cols)
    throw IoError(str_cat(directory_, ": tensor \"", entry.name, "\" has shape [", source.rows, ", ", source.cols,
                          "], the model needs ", sharding.global_shape_text()));
  Tensor target = entry.tensor;
  const TensorView view = target.view();
  MEGATRON_CHECK(view.dtype == DType::float32 || view.dtype == DType::float64, entry.name, ": weights of ",
                 dtype_name(view.dtype));
  MEGATRON_CHECK(view.is_contiguous(), entry.name, ": the local tensor has gaps");
  std::memset(view.pointer, 0, static_cast<std::size_t>(view.bytes()));
  for (const spec::Piece& piece : sharding.pieces) {
    const std::int64_t offset = piece.local_row * sharding.local_cols;
    if (view.dtype == DType::float32)
      copy_box(source, piece.global, view.data<float>() + offset, sharding.local_cols);
    else
      copy_box(source, piece.global, view.data<double>() + offset, sharding.local_cols);
  }
}

std::vector<float> HuggingFaceModel::logical(const std::string& name) const {
  const TensorMapping& source = mapping(name);
  std::vector<float> values(static_cast<std::size_t>(source.rows * source.cols));
  copy_box(source, {0, 0, source.rows, source.cols}, values.data(), source.cols);
  return values;
}

std::vector<ForeignTensor> HuggingFaceModel::to_foreign(const std::string& name,
                                                        const std::vector<float>& values) const {
  const TensorMapping& source = mapping(name);
  MEGATRON_CHECK_EQ(static_cast<std::int64_t>(values.size()), source.rows * source.cols, "elements of ", name);
  std::vector<ForeignTensor> tensors;
  for (const ForeignPart& part : source.parts) {
    ForeignTensor& tensor = tensors.emplace_back(ForeignTensor{part.name, part.shape, {}});
    tensor.values.resize(static_cast<std::size_t>(part.rows() * part.cols()));
    for (const RowRun& run : part.runs)
      for (std::int64_t r = 0; r < run.rows; ++r)
        for (std::int64_t c = 0; c < source.cols; ++c) {
          const std::int64_t row = run.foreign_row + r;
          const std::int64_t at = part.turned ? c * part.rows() + row : row * source.cols + c;
          tensor.values[static_cast<std::size_t>(at)] =
              values[static_cast<std::size_t>((run.row + r) * source.cols + c)];
        }
  }
  return tensors;
}

std::vector<std::string> HuggingFaceModel::foreign_names(const std::string& name) const {
  std::vector<std::string> names;
  for (const ForeignPart& part : mapping(name).parts) names.push_back(part.name);
  return names;
}

}  // namespace megatron::interop
