// The only place where pieces are put together: from a run's description to its world, to what the ranks of a process
// share, and to what one rank owns.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/world.h"
#include "data/build.h"
#include "mesh/mesh.h"
#include "model/model.h"
#include "optim/grad_buffer.h"
#include "optim/optimizer.h"
#include "optim/parameter_store.h"
#include "optim/post_validation.h"
#include "pipeline/engine.h"
#include "spec/run_spec.h"
#include "tokenizer/tokenizer.h"

namespace megatron::train {

/// Ranks are processes of a launcher, not threads of this one.
bool uses_mpi(const spec::RunSpec& run);
/// Throws ConfigError where the run would have more ranks as threads than one process can have.
void check_thread_ranks(const spec::RunSpec& run);
/// Ranks as MPI processes under mpirun or srun or with --distributed-backend mpi, else as threads of this process.
/// Throws ConfigError when the launcher's number of processes is not the run's world size. `is_main` of the result's
/// process prints. `stop_signal` and `on_failure` as in comm::WorldOptions.
std::unique_ptr<comm::World> create_world(const spec::RunSpec& run, const std::atomic<int>* stop_signal = nullptr,
                                          std::function<void()> on_failure = {});

/// The tokenizer that the run names; null without --tokenizer-type. Throws ConfigError.
std::shared_ptr<const tokenizer::Tokenizer> create_tokenizer(const spec::RunSpec& run);

/// Opens the data of the run for `requested` samples; ids at or above the vocabulary are refused. `say` (may be empty)
/// hears how far raw text is tokenised; `stop_signal` (may be null) ends that: throws Interrupted once it is not 0.
data::Datasets open_datasets(const spec::RunSpec& run, const tokenizer::Tokenizer* tokenizer,
                             const data::RequestedSamples& requested,
                             const std::function<void(const std::string&)>& say = {},
                             const std::atomic<int>* stop_signal = nullptr);

/// What the ranks of one process share. Read-only while they run.
struct Process {
  spec::RunSpec run;                                      // complete: all derived fields set
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  // null: none
  data::Datasets data;
  /// Number of the signal that asks the run to stop, 0 for none; null: never.
  const std::atomic<int>* stop_signal = nullptr;
  /// Measure the machine's matrix product after the first step, for the log.
  bool measure_peak = false;
};

/// Everything that belongs to one rank. Lives on the rank's thread.
class RankParts {
 public:
  enum class Use : std::uint8_t { training, inference };
  /// Creates executor, mesh and model, for training also gradient buffer, optimizer and engine. Weights are not yet
  /// initialised. Collective over the world. Throws Error when the parameters of the built model do not add up to the
  /// number that the formula gives.
  RankParts(comm::RankContext& context, const spec::RunSpec& run, Use use);
  ~RankParts();
  RankParts(const RankParts&) = delete;
  RankParts& operator=(const RankParts&) = delete;

  mesh::Rank& rank() { return *rank_; }
  mesh::Mesh& mesh() { return mesh_; }
  kernels::Executor& exec() { return *exec_; }
  model::Model& model() { return *model_; }
  optim::GradBuffer& grad_buffer() { return *grad_buffer_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  pipeline::Engine& engine() { return *engine_; }
  const spec::RunSpec& run() const { return run_; }

  /// Null unless stages update ahead of each other.
  optim::PostValidation* post_validation() const { return post_validation_.get(); }
  /// The two halves of update() where they do. Between them the gradients must not change.
  void update_ahead(const optim::UpdateInput& input, const optim::StageOutcome& outcome);
  optim::UpdateResult settle_update();
  /// After settle_update(): values of this stage that were shared out too early are shared again. Collective over dp.
  void share_corrected_values();

  /// Optimizer step; a distributed optimizer's values are then gathered while the next passes run.
  optim::UpdateResult update(const optim::UpdateInput& input);
  /// Gives a parameter its value, rounded to its type, and its main weight, if it has one, from `values_fp32`, shaped
  /// alike; of both what this rank holds.
  void set_weights(nn::Parameter& parameter, const Tensor& values_fp32);
  /// For passes outside of the engine (nn::Pass::parameter_gate); null where every rank has all values.
  nn::ParameterGate* parameter_gate() { return parameter_store_.get(); }
  /// Waits for values that are still being gathered.
  void finish_gathers();
  /// Returns when every parameter has its whole value, which it keeps until the next update: for what reads values
  /// outside of a pass. Collective over dp.
  void complete_values();
  /// The values that this rank holds between passes, final, of parameters that do not share another's memory: whole
  /// ones, or with holds_value_shards() its shards. Collective over dp.
  std::vector<optim::OwnedPart> held_values();
  /// Data-parallel ranks hold different parts of values.
  bool holds_value_shards() const;
  /// Seconds of this step in which this rank only waited for gradients and values of other data-parallel ranks.
  double take_exposed_seconds();

  /// Parameters of the whole model, each logical one once, without vocabulary padding.
  std::int64_t num_parameters() const { return num_parameters_; }
  /// Parameters of this rank's stages, each logical one once: summed over the tensor-parallel group.
  std::int64_t stage_parameters() const { return stage_parameters_; }
  /// All ranks, also where there is only one.
  comm::Communicator& world() { return *world_; }
  /// True on the one rank that prints and writes logs.
  bool is_main() const { return mesh_.rank == 0; }

 private:
  void count_parameters();
  /// Gradient buffer, parameter store and optimizer.
  void make_optimizer(spec::ShardingStrategy strategy);

  const spec::RunSpec& run_;
  std::unique_ptr<kernels::Executor> exec_;
  mesh::Mesh mesh_;
  std::unique_ptr<mesh::Rank> rank_;
  std::shared_ptr<comm::Communicator> world_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<optim::GradBuffer> grad_buffer_;
  std::unique_ptr<optim::ParameterStore> parameter_store_;  // null unless values are shared out
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::PostValidation> post_validation_;
  std::unique_ptr<pipeline::Engine> engine_;
  std::int64_t num_parameters_ = 0, stage_parameters_ = 0;
};

}  // namespace megatron::train
