// Stages driven by hand: whole logical tensors in and out of shards, one step through all stages without the engine.
// Everything here is independent of the gradient buffer, the engine and the checkpoint code.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "model/build.h"
#include "model/stage.h"
#include "nn/pass.h"
#include "spec/run_spec.h"

namespace megatron::testing {

/// Whole logical tensors, row-major.
using WholeTensors = std::map<std::string, std::vector<double>>;

/// Fills in derived fields: ffn, head size, groups, padded vocabulary (multiple of `divisible`·tp), layers per stage
/// (as even as possible).
spec::RunSpec make_run(spec::ModelSpec model, const spec::ParallelSpec& parallel, std::int64_t divisible = 1);

/// Copies this rank's part of each whole tensor into its parameter; tensors that are not there leave it as it is.
void scatter_into(nn::Parameter& parameter, const std::vector<double>& whole);
void scatter_parameters(model::Stage& stage, const WholeTensors& whole);

/// Adds up what ranks hold, under a lock: call it on every rank of one data-parallel replica.
class Gatherer {
 public:
  /// Owned pieces of the values.
  void add_values(model::Stage& stage);
  void add_values(const nn::Parameter& parameter);
  /// Gradients of each logical tensor: replicas count once, unless the ranks' gradients are parts of a sum.
  void add_gradients(model::Stage& stage);
  void add_gradient(const nn::Parameter& parameter);
  WholeTensors tensors;

 private:
  void add(const nn::Parameter& parameter, const Tensor& tensor, bool all_pieces);
  std::mutex mutex_;
};

/// Zeroed main gradients for each parameter, in its dtype.
void allocate_gradients(kernels::Executor& exec, const std::vector<nn::Parameter*>& parameters);

/// `count` sequences of `length` random tokens, labels, and masks with zeros and fractions; logical sample numbers from
/// `first_sample`. The token shard is that of TP rank `tp_rank` of `tp_size` if `sharded`.
nn::MicroBatch make_batch(std::uint64_t seed, std::int64_t first_sample, std::int64_t count, std::int64_t length,
                          std::int64_t vocab);
/// Fills in the part that depends on the layout.
void place_batch(nn::MicroBatch& batch, const mesh::Rank& rank, bool sequence_parallel);
/// The same shape without values, for meta tensors.
nn::MicroBatch meta_batch(std::int64_t count, std::int64_t length);

struct StepOptions {
  nn::Mode mode = nn::Mode::train;
  bool backward = true;
  bool deferred_weight_grads = false;
  std::uint64_t seed = 1234;
  nn::GradSink* sink = nullptr;
  std::function<void(std::int64_t micro_batch, std::int64_t layer, const Tensor&)> observe_hidden;
};

/// All forwards, then all backwards (in order), with messages over the pp group. Returns the per-token losses of each
/// micro-batch on the last stage. main_grad must be allocated when `backward`.
std::vector<std::vector<double>> run_stage_step(mesh::Rank& rank, model::Stage& stage, const spec::RunSpec& run,
                                                const std::vector<nn::MicroBatch>& batches, const StepOptions& options,
                                                DType dtype = DType::float32);

std::vector<double> to_doubles(const Tensor& tensor);
/// max|a − b| ÷ max|b|; NaN-safe (a NaN gives infinity).
double relative_max_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace megatron::testing
