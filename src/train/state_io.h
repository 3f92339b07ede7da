// A run's state as the checkpoint sees it: weights, optimizer state, position, configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_state.h"
#include "checkpoint/state_entry.h"
#include "schedule/lr_schedule.h"
#include "train/assemble.h"

namespace megatron::train {

/// Where a run stands: what resumes it, besides tensors.
struct RunPosition {
  std::int64_t iteration = 0;
  std::int64_t consumed_samples = 0;
  std::int64_t consumed_valid_samples = 0;
  /// Index of the learning-rate schedule: samples of the steps that changed the weights.
  std::int64_t schedule_samples = 0;
  std::int64_t trained_tokens = 0;
  std::int64_t skipped_iterations = 0;
  std::optional<checkpoint::LossScalerState> loss_scaler = {};  // of float16 runs
};

/// The weights of this rank, and with `optimizer` its optimizer state. For writing, entries of other data-parallel
/// ranks and tied copies are no writers; for reading, a tied copy with memory of its own reads the table.
std::vector<checkpoint::StateEntry> state_entries(RankParts& parts, bool with_optimizer);

/// Writes --save/iter_… with everything that a resume needs; returns the directory. Collective over the world.
std::string save_state(RankParts& parts, const Process& process, const RunPosition& position,
                       const schedule::LrSchedule& schedule);

struct LoadedState {
  RunPosition position;
  std::string directory;  // that was read
  bool with_optimizer = false;
  /// What the checkpoint's run used; nothing with --finetune.
  std::optional<schedule::LrSchedule> schedule;
  std::vector<std::string> notes;  // one line each
};

/// Reads --load as --finetune, --no-load-optim and --ckpt-step say. Nothing when there is no checkpoint (an error with
/// --exit-on-missing-checkpoint or --ckpt-step). Throws ConfigError naming option and both values where the
/// checkpoint's model is another one. Collective over the world only in that all ranks read.
std::optional<LoadedState> load_state(RankParts& parts);

/// What a checkpoint says of the run that wrote it; without layout and places.
struct StoredRun {
  std::int64_t iteration = 0;
  spec::RunSpec run;
  std::string tokenizer_json;  // "{}": none
};
/// `iteration` unset: the latest. Throws IoError when there is none.
StoredRun read_stored_run(const std::string& directory, std::optional<std::int64_t> iteration);

/// Reads only the weights of DIR/iter_….
void load_weights(RankParts& parts, const std::string& directory, std::int64_t iteration);

/// Throws IoError on every rank, naming directory, need and what is free, unless --save may be written and has room for
/// a checkpoint of this run. Collective over the world.
void check_room_to_save(RankParts& parts);

/// Bytes that a checkpoint of this run takes on disk.
std::int64_t checkpoint_bytes(RankParts& parts);

/// What to say where a run that loads nothing saves into a folder with a checkpoint; empty: nothing.
std::string earlier_run_warning(const spec::RunSpec& run);

}  // namespace megatron::train
