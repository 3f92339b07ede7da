// Reads a checkpoint at any layout: each rank maps the files and copies its boxes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state_entry.h"

namespace megatron::checkpoint {

/// Iteration named by DIR/latest_checkpointed_iteration.txt; nothing if the file is not there. Throws IoError if it
/// holds anything but a number.
std::optional<std::int64_t> latest_iteration(const std::string& directory);

class CheckpointReader {
 public:
  /// Opens DIR/iter_… (`iteration`) or, when DIR itself holds manifest.json, DIR. Checks the manifest: files present,
  /// sizes equal. Throws IoError naming the file.
  CheckpointReader(const std::string& directory, std::int64_t iteration);
  ~CheckpointReader();

  /// The folder that was opened and the iteration its manifest names.
  const std::string& path() const;
  std::int64_t iteration() const;
  const std::string& state_json() const;
  std::vector<std::string> names() const;
  bool has(const std::string& name) const;
  /// Logical shape as it stands in the file.
  std::vector<std::int64_t> shape(const std::string& name) const;
  /// Fills the entry's pieces; rows of the local tensor that no piece covers become zero. Names in other spellings
  /// (fused `linear_qkv.layer_norm_weight` for `input_layernorm.weight` …) are found too. The shape must be the logical
  /// one, except that a padded vocabulary in the file is cut. Other float types are converted. Throws IoError naming
  /// tensor and file.
  void read(const StateEntry& entry) const;
  /// Recomputes the checksums of headers and tensors; throws IoError naming the first that differs. With `parts` > 1
  /// only every parts-th tensor from `part` on is read: ranks share the work. `with_optimizer` false leaves the tensors
  /// of the optimizer out. That of state.json is compared when the checkpoint is opened.
  void verify_checksums(int part = 0, int parts = 1, bool with_optimizer = true) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megatron::checkpoint
