// Writes a checkpoint: whole logical tensors in ordinary safetensors files, whatever the layout.
//   DIR/iter_0000010/model-00001.safetensors …, optimizer-00001.safetensors …, state.json, manifest.json
//   DIR/latest_checkpointed_iteration.txt
// Written as iter_0000010.tmp → fsync → manifest.json (size of each file, xxh3 of each tensor, version) → rename →
// tracker file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/state_entry.h"
#include "comm/communicator.h"

namespace megatron::checkpoint {

/// Collective over `world`. Entries whose name starts with "optimizer." go to the optimizer files. Each logical tensor
/// has one writer rank (spread by bytes); holders send it their owned boxes in panels of at most 64 MiB. `state_json`:
/// text written by rank 0. Two equal runs write byte-identical files; the files do not depend on the layout. Throws
/// IoError (on every rank) naming path and reason; then nothing stays under the final name. Returns the final
/// directory.
std::string write_checkpoint(comm::Communicator& world, const std::string& directory, std::int64_t iteration,
                             std::span<const StateEntry> entries, const std::string& state_json,
                             std::int64_t max_file_bytes = std::int64_t{4} << 30);

}  // namespace megatron::checkpoint
