// Writes a checkpoint: whole logical tensors in ordinary safetensors files, whatever the layout.
//   DIR/iter_0000010/model-00001.safetensors …, optimizer-00001.safetensors …, state.json, manifest.json
//   DIR/latest_checkpointed_iteration.txt
// Written as iter_0000010.tmp → fsync → manifest.json (size of each file, xxh3 of each tensor, version) → rename →
// tracker file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/state_entry.h"
#include "comm/communicator.h"

namespace megatron::checkpoint {

struct WriteOptions {
  /// A file is closed when the next tensor would carry its data beyond this; a larger tensor has a file of its own.
  std::int64_t max_file_bytes = std::int64_t{4} << 30;
  /// Rows of a tensor move from holders to the writer in panels of at most this size (but at least one row).
  std::int64_t max_panel_bytes = std::int64_t{16} << 20;
  /// For tests: called on each rank before "create" and "write", and on the first rank before "commit", "rename" and
  /// "tracker". What it throws counts as that step's failure on that rank.
  std::function<void(std::string_view step, int rank)> before_step;
};

/// Collective over `world`. Entries whose name starts with "optimizer." go to the optimizer files. Each logical tensor
/// has one writer rank (spread by bytes); holders send it their owned boxes in panels of at most 16 MiB. The writer
/// puts them into the shared file at their place, so with several hosts `directory` must be on a file system that they
/// share. `state_json`: text written by rank 0. Two equal runs write byte-identical files; the files do not depend on
/// the layout. Throws IoError (on every rank) naming path and reason; then nothing new stays under the final name, and
/// the tracker file names what it named before. An existing folder of the same iteration is replaced in one rename
/// where the file system can exchange names. What an interrupted save left behind (iter_*.tmp) is removed. Returns the
/// final directory.
std::string write_checkpoint(comm::Communicator& world, const std::string& directory, std::int64_t iteration,
                             std::span<const StateEntry> entries, const std::string& state_json,
                             const WriteOptions& options);
std::string write_checkpoint(comm::Communicator& world, const std::string& directory, std::int64_t iteration,
                             std::span<const StateEntry> entries, const std::string& state_json,
                             std::int64_t max_file_bytes = std::int64_t{4} << 30);

/// Data bytes that this rank contributes to a checkpoint of `entries`; the sum over ranks is the size of its tensors.
std::int64_t required_bytes(std::span<const StateEntry> entries);
/// Throws IoError unless `directory` (or the nearest parent that exists) may be written and its file system has room
/// for `bytes`; the line names the directory, the need and what is free.
void check_free_space(const std::string& directory, std::int64_t bytes);
/// Collective form: sums the ranks' required bytes, looks on rank 0, throws everywhere.
void check_free_space(comm::Communicator& world, const std::string& directory, std::span<const StateEntry> entries);

/// "iter_0000010"
std::string iteration_folder(std::int64_t iteration);

}  // namespace megatron::checkpoint
