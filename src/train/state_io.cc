#include "train/state_io.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checkpoint/agree.h"
#include "checkpoint/reader.h"
#include "checkpoint/run_state.h"
#include "checkpoint/writer.h"
#include "train/model_match.h"
#include "train/run_json.h"
#include "train/schedules.h"

namespace megatron::train {
namespace {

std::string folder_of(const std::string& directory, std::int64_t iteration) {
  return (std::filesystem::path(directory) / checkpoint::iteration_folder(iteration)).string();
}

/// True if DIR holds folders of complete checkpoints.
bool holds_checkpoints(const std::string& directory) {
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(directory, error))
    if (std::filesystem::exists(item.path() / "manifest.json", error)) return true;
  return false;
}

std::optional<std::int64_t> iteration_to_load(const spec::CheckpointSpec& spec) {
  if (spec.ckpt_step.has_value()) return spec.ckpt_step;
  const std::optional<std::int64_t> latest = checkpoint::latest_iteration(*spec.load);
  if (latest.has_value()) return latest;
  if (std::filesystem::exists(std::filesystem::path(*spec.load) / "manifest.json")) return 0;
  if (holds_checkpoints(*spec.load))
    throw IoError(str_cat(*spec.load,
                          ": holds checkpoints but no latest_checkpointed_iteration.txt: name one with "
                          "--ckpt-step, or leave --load out to start anew"));
  if (spec.exit_on_missing_checkpoint)
    throw IoError(str_cat(*spec.load, ": holds no checkpoint (--exit-on-missing-checkpoint)"));
  return std::nullopt;
}

/// One line for each folder in DIR that a look would take for something newer than iteration `loaded`.
std::vector<std::string> ignored_folders(const std::string& directory, std::int64_t loaded) {
  std::vector<std::string> notes;
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = item.path().filename().string();
    if (name.rfind("iter_", 0) != 0) continue;
    if (item.path().extension() == ".tmp") {
      notes.push_back(str_cat("ignored ", item.path().string(), ": a save that did not finish"));
    } else if (name > checkpoint::iteration_folder(loaded)) {
      notes.push_back(str_cat("ignored ", item.path().string(), ": latest_checkpointed_iteration.txt names ", loaded));
    }
  }
  std::sort(notes.begin(), notes.end());
  return notes;
}

void read_entries(RankParts& parts, const checkpoint::CheckpointReader& reader, bool with_optimizer,
                  const std::string& directory) {
  const std::vector<checkpoint::StateEntry> entries = state_entries(parts, with_optimizer);
  std::string missing;
  for (const checkpoint::StateEntry& entry : entries)
    if (!reader.has(entry.name)) missing += (missing.empty() ? "" : ", ") + entry.name;
  if (!missing.empty())
    throw IoError(str_cat(directory, ": tensors are missing: ", missing,
                          missing.find("optimizer.") == 0 ? " (--no-load-optim loads the weights alone)" : ""));
  const mesh::Group& world = parts.mesh().world;
  checkpoint::Failure damage;
  damage.guard([&] { reader.verify_checksums(world.rank(), world.size(), with_optimizer); });
  checkpoint::agree(parts.world(), damage);
  for (const checkpoint::StateEntry& entry : entries) reader.read(entry);
  for (nn::Parameter* parameter : parts.model().parameters()) ++parameter->version;
}

}  // namespace

std::vector<checkpoint::StateEntry> state_entries(RankParts& parts, bool with_optimizer) {
  parts.complete_values();
  const bool first_replica = parts.mesh().dp.rank() == 0;
  const std::vector<nn::Parameter*>& parameters = parts.model().parameters();
  std::vector<checkpoint::StateEntry> entries;
  for (const nn::Parameter* parameter : parameters)
    if (!nn::shares_table(*parameter, parameters))
      entries.push_back(
          {parameter->name, parameter->sharding, first_replica && !parameter->tied_use, parameter->value});
  if (!with_optimizer) return entries;
  for (optim::OptimizerState& state : parts.optimizer().states())
    entries.push_back({"optimizer." + state.kind + "." + state.parameter->name, state.parameter->sharding,
                       first_replica && !state.parameter->tied_use, state.tensor});
  return entries;
}

std::string save_state(RankParts& parts, const Process& process, const RunPosition& position,
                       const schedule::LrSchedule& schedule) {
  const spec::RunSpec& run = parts.run();
  checkpoint::RunState state;
  state.iteration = position.iteration;
  state.consumed_samples = position.consumed_samples;
  state.consumed_valid_samples = position.consumed_valid_samples;
  state.trained_tokens = position.trained_tokens;
  state.skipped_iterations = position.skipped_iterations;
  state.num_updates = parts.optimizer().num_updates();
  state.scheduler_samples = position.schedule_samples;
  state.schedule = to_state(schedule);
  state.run_json = run_to_json(run);
  if (process.tokenizer != nullptr) state.tokenizer_json = process.tokenizer->identity_json();
  return checkpoint::write_checkpoint(parts.world(), *run.checkpoint.save, position.iteration,
                                      state_entries(parts, !run.checkpoint.no_save_optim),
                                      checkpoint::run_state_to_json(state));
}

std::int64_t checkpoint_bytes(RankParts& parts) {
  const auto entries = state_entries(parts, !parts.run().checkpoint.no_save_optim);
  Tensor bytes = parts.exec().empty({1}, DType::int64, MemoryKind::communication);
  bytes.data<std::int64_t>()[0] = checkpoint::required_bytes(entries);
  if (!parts.mesh().world.trivial()) bytes = parts.mesh().world.all_reduce(std::move(bytes), "checkpoint_bytes");
  return std::as_const(bytes).data<std::int64_t>()[0];
}

void check_room_to_save(RankParts& parts) {
  checkpoint::check_free_space(parts.world(), *parts.run().checkpoint.save,
                               state_entries(parts, !parts.run().checkpoint.no_save_optim));
}

StoredRun read_stored_run(const std::string& directory, std::optional<std::int64_t> iteration) {
  spec::CheckpointSpec where;
  where.load = directory;
  where.ckpt_step = iteration;
  where.exit_on_missing_checkpoint = true;
  const std::int64_t found = *iteration_to_load(where);
  const checkpoint::CheckpointReader reader(directory, found);
  const std::string path = reader.path() + "/state.json";
  const checkpoint::RunState state = checkpoint::run_state_from_json(reader.state_json(), path);
  return {found, run_from_json(state.run_json, path), state.tokenizer_json};
}

std::optional<LoadedState> load_state(RankParts& parts) {
  const spec::RunSpec& run = parts.run();
  const std::optional<std::int64_t> iteration = iteration_to_load(run.checkpoint);
  if (!iteration.has_value()) return std::nullopt;
  LoadedState loaded;
  loaded.directory = folder_of(*run.checkpoint.load, *iteration);
  const checkpoint::CheckpointReader reader(*run.checkpoint.load, *iteration);
  const checkpoint::RunState state =
      checkpoint::run_state_from_json(reader.state_json(), loaded.directory + "/state.json");
  check_same_model(run_from_json(state.run_json, loaded.directory + "/state.json").model, run.model, loaded.directory);
  if (!run.checkpoint.ckpt_step.has_value()) loaded.notes = ignored_folders(*run.checkpoint.load, *iteration);
  loaded.with_optimizer = !run.checkpoint.finetune && !run.checkpoint.no_load_optim;
  read_entries(parts, reader, loaded.with_optimizer, loaded.directory);
  if (run.checkpoint.finetune) {
    loaded.notes.push_back("--finetune: weights only; iteration, samples and schedule start at 0");
    return loaded;
  }
  loaded.position = {state.iteration,         state.consumed_samples, state.consumed_valid_samples,
                     state.scheduler_samples, state.trained_tokens,   state.skipped_iterations};
  loaded.schedule = from_state(state.schedule);
  if (loaded.with_optimizer) {
    parts.optimizer().set_num_updates(state.num_updates);
  } else {
    loaded.notes.push_back(
        str_cat("--no-load-optim: moments start at 0; the learning rate goes on at sample ", state.scheduler_samples));
  }
  return loaded;
}

void load_weights(RankParts& parts, const std::string& directory, std::int64_t iteration) {
  const checkpoint::CheckpointReader reader(directory, iteration);
  read_entries(parts, reader, false, folder_of(directory, iteration));
}

}  // namespace megatron::train
