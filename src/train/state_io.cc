#include "train/state_io.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "checkpoint/agree.h"
#include "checkpoint/reader.h"
#include "checkpoint/run_state.h"
#include "checkpoint/writer.h"
#include "train/data_match.h"
#include "train/model_match.h"
#include "train/run_json.h"
#include "train/stored_lr_schedule.h"

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
  if (spec.exit_on_missing_checkpoint) throw IoError(str_cat(*spec.load, ": holds no checkpoint"));
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

constexpr const char* kMainWeight = "fp32_param";

std::string main_weight_name(const nn::Parameter& parameter) {
  return str_cat("optimizer.", kMainWeight, ".", parameter.name);
}

/// A flat tensor of what this rank holds of a parameter, as boxes.
void add_entries(const std::string& name, const optim::ParameterRange& range, const Tensor& tensor, bool writer,
                 std::vector<checkpoint::StateEntry>& entries) {
  const spec::Sharding& sharding = range.parameter->sharding;
  if (range.whole()) {
    entries.push_back({name, sharding, writer, tensor.reshape(range.parameter->value.shape())});
    return;
  }
  for (const spec::FlatPiece& piece : spec::pieces_of_range(sharding, range.begin, range.end)) {
    const spec::Box& box = piece.global;
    const spec::Sharding part{sharding.num_dims, sharding.rows, sharding.cols,
                              box.rows,          box.cols,      {{box, 0, piece.owned}}};
    const Tensor held = tensor.slice(0, piece.local_begin - range.begin, piece.local_end() - range.begin);
    entries.push_back(
        {name, part, writer, held.reshape(sharding.num_dims == 1 ? Shape{box.rows} : Shape{box.rows, box.cols})});
  }
}

const char* optimizer_text(spec::OptimizerKind kind) {
  switch (kind) {
    case spec::OptimizerKind::adam:
      return "adam";
    case spec::OptimizerKind::sgd:
      return "sgd";
    case spec::OptimizerKind::lion:
      return "lion";
    case spec::OptimizerKind::muon:
      return "muon";
  }
  return "?";
}

/// The moments of one optimizer mean nothing to another.
void check_same_optimizer(const spec::OptimizerSpec& stored, const spec::OptimizerSpec& own,
                          const std::string& directory) {
  if (stored.kind == own.kind) return;
  throw ConfigError(str_cat(directory, ": written with --optimizer ", optimizer_text(stored.kind), ", this run has ",
                            optimizer_text(own.kind), "; nearest: --no-load-optim, which loads the weights alone"));
}

std::string missing_text(const std::vector<std::string>& names, bool finds_state) {
  constexpr std::size_t kShown = 4;
  const bool state = names.front().rfind("optimizer.", 0) == 0;
  const char* const way_out = " (--no-load-optim loads the weights alone)";
  if (state && !finds_state) return str_cat("holds no optimizer state", way_out);
  std::string text = "tensors are missing: ";
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kShown) text += str_cat(" and ", names.size() - kShown, " more");
  return text + (state ? way_out : "");
}

/// Values, and main weights where there are any, from the main weight on disk if it is there, else from the value.
void read_weights(RankParts& parts, const checkpoint::CheckpointReader& reader) {
  const std::vector<nn::Parameter*>& parameters = parts.model().parameters();
  for (nn::Parameter* parameter : parameters) {
    if (nn::shares_table(*parameter, parameters)) continue;
    const std::string main = main_weight_name(*parameter);
    const std::string source = reader.has(main) ? main : parameter->name;
    if (!is_16_bit_float(parameter->value.dtype()) && !parts.holds_value_shards()) {
      reader.read({source, parameter->sharding, false, parameter->value});
      continue;
    }
    const Tensor wide = parts.exec().zeros(parameter->value.shape(), DType::float32, MemoryKind::activation);
    reader.read({source, parameter->sharding, false, wide});
    parts.set_weights(*parameter, wide);
  }
}

void read_entries(RankParts& parts, const checkpoint::CheckpointReader& reader, bool with_optimizer,
                  const std::string& directory) {
  const std::vector<checkpoint::StateEntry> entries = state_entries(parts, with_optimizer);
  const auto is_main = [](const checkpoint::StateEntry& entry) {
    return entry.name.rfind(str_cat("optimizer.", kMainWeight, "."), 0) == 0;
  };
  std::vector<std::string> missing;
  bool reads_main = false, finds_state = false;
  for (const checkpoint::StateEntry& entry : entries) {
    const bool there = reader.has(entry.name);
    if (!is_main(entry) && !there) missing.push_back(entry.name);
    finds_state = finds_state || (there && entry.name.rfind("optimizer.", 0) == 0);
    reads_main = reads_main || reader.has(str_cat("optimizer.", kMainWeight, ".", entry.name));
  }
  if (!missing.empty()) throw IoError(str_cat(directory, ": ", missing_text(missing, finds_state)));
  const mesh::Group& world = parts.mesh().world;
  checkpoint::Failure damage;
  damage.guard([&] { reader.verify_checksums(world.rank(), world.size(), with_optimizer || reads_main); });
  checkpoint::agree(parts.world(), damage);
  read_weights(parts, reader);
  for (const checkpoint::StateEntry& entry : entries)
    if (entry.name.rfind("optimizer.", 0) == 0 && !is_main(entry)) reader.read(entry);
}

}  // namespace

std::vector<checkpoint::StateEntry> state_entries(RankParts& parts, bool with_optimizer) {
  const bool first_replica = parts.mesh().dp.rank() == 0;
  std::vector<checkpoint::StateEntry> entries;
  for (const optim::OwnedPart& part : parts.held_values()) {
    const nn::Parameter& parameter = *part.range.parameter;
    const bool writer = (parts.holds_value_shards() || first_replica) && !parameter.tied_use;
    add_entries(parameter.name, part.range, part.value, writer, entries);
  }
  if (!with_optimizer) return entries;
  const bool sharded = parts.grad_buffer().sharded();
  for (const optim::OptimizerState& state : parts.optimizer().states()) {
    const nn::Parameter& parameter = *state.range.parameter;
    add_entries(str_cat("optimizer.", state.kind, ".", parameter.name), state.range, state.tensor.flat(),
                (sharded || first_replica) && !parameter.tied_use, entries);
  }
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
  state.loss_scaler = position.loss_scaler;
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
  if (loaded.with_optimizer)
    check_same_optimizer(run_from_json(state.run_json, loaded.directory + "/state.json").optimizer, run.optimizer,
                         loaded.directory);
  read_entries(parts, reader, loaded.with_optimizer, loaded.directory);
  if (run.checkpoint.finetune) {
    loaded.notes.push_back("--finetune: weights only; iteration, samples and schedule start at 0");
    return loaded;
  }
  loaded.position = {state.iteration,         state.consumed_samples, state.consumed_valid_samples,
                     state.scheduler_samples, state.trained_tokens,   state.skipped_iterations,
                     state.loss_scaler};
  loaded.schedule = from_state(state.schedule);
  const spec::RunSpec stored = run_from_json(state.run_json, loaded.directory + "/state.json");
  for (const std::string& line : data_differences(stored, run, state.consumed_samples)) loaded.notes.push_back(line);
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

std::string earlier_run_warning(const spec::RunSpec& run) {
  if (!run.checkpoint.save.has_value()) return "";
  try {
    const std::optional<std::int64_t> iteration = checkpoint::latest_iteration(*run.checkpoint.save);
    if (!iteration) return "";
    return str_cat("warning: --save ", *run.checkpoint.save, " holds iteration ", *iteration,
                   " of an earlier run; this one starts at iteration 0 and will save over it. --load ",
                   *run.checkpoint.save, " goes on with it");
  } catch (const IoError&) {
    return "";  // what cannot be read is no run to go on with
  }
}

}  // namespace megatron::train
