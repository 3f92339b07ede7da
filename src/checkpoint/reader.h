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

  const std::string& state_json() const;
  std::vector<std::string> names() const;
  bool has(const std::string& name) const;
  /// Fills the entry's pieces. Names in other spellings (fused `linear_qkv.layer_norm_weight` for
  /// `input_layernorm.weight` …) are found too. Shape must match the logical one (a padded vocabulary in the file is
  /// cut). Throws IoError.
  void read(const StateEntry& entry) const;
  /// Recomputes the checksum of every tensor; throws IoError naming the first that differs.
  void verify_checksums() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megatron::checkpoint
