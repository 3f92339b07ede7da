// A Hugging Face model folder (gpt2 and llama types) as a source of logical tensors under Megatron Core's names, and
// the way back: what a logical tensor of ours is called and how it lies over there. Conversions: GPT-2's matrices are
// turned ([in, out] → [out, in]) and its c_attn [q | k | v] goes into linear_qkv per head; Llama's q, k, v go into
// linear_qkv per group, gate and up into linear_fc1 = [all gate; all up]. Rotary pairs are (i, i + d/2) on both sides.
// All copies are exact.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/state_entry.h"
#include "interop/huggingface_config.h"
#include "interop/huggingface_names.h"
#include "spec/model_spec.h"

namespace megatron::interop {

/// A tensor as the foreign side has it.
struct ForeignTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // row-major
};

class HuggingFaceModel {
 public:
  /// Opens DIR/`config_name` and DIR/model.safetensors or the files that DIR/model.safetensors.index.json names. Throws
  /// ConfigError for a model that is not supported (see huggingface_config.h), IoError naming file and tensor for
  /// missing, unknown or misshapen tensors.
  explicit HuggingFaceModel(const std::string& directory, const std::string& config_name = "config.json");

  const spec::ModelSpec& model() const { return config_.model; }
  /// Of all logical tensors, ours; those of a tied head are not listed.
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return by_name_.count(name) != 0; }
  std::int64_t num_elements(const std::string& name) const;
  /// Fills the entry's pieces (float32 or float64) and zeroes padding rows. The logical shape must be the model's.
  /// Throws IoError naming the tensor.
  void read(const checkpoint::StateEntry& entry) const;
  /// A whole logical tensor, row-major.
  std::vector<float> logical(const std::string& name) const;
  /// The foreign tensors that our tensor `name` becomes; `values` is whole, row-major.
  std::vector<ForeignTensor> to_foreign(const std::string& name, const std::vector<float>& values) const;
  /// Names of the foreign tensors that make up ours.
  std::vector<std::string> foreign_names(const std::string& name) const;

 private:
  void open_files(const std::string& directory);
  void check_tensors() const;
  void check_tied_head(const std::string& name) const;
  const TensorMapping& mapping(const std::string& name) const;
  const checkpoint::SafetensorsFile& file_of(const std::string& foreign, std::string& stored) const;
  template <typename T>
  void copy_box(const TensorMapping& mapping, const spec::Box& box, T* out, std::int64_t stride) const;

  std::string directory_;
  HuggingFaceConfig config_;
  std::vector<TensorMapping> mappings_;
  std::map<std::string, std::size_t> by_name_;
  std::vector<std::shared_ptr<checkpoint::SafetensorsFile>> files_;
  std::map<std::string, std::size_t> stored_;  // name in the files → file
};

}  // namespace megatron::interop
